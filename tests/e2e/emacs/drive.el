;; -*- lexical-binding: t -*-
;; A small file in eglot: problems, hovers, a graph that follows the unsaved buffer.

(setq eglot-send-changes-idle-time 0.1
      auto-revert-interval 1)

(defun clock ()
  "Seconds, without those in which this process waited for a processor, where the system (Linux) says so."
  (let ((waits "/proc/self/schedstat"))
    (- (float-time)
       (if (file-readable-p waits)
           (with-temp-buffer
             (insert-file-contents waits)
             (/ (string-to-number (cadr (split-string (buffer-string)))) 1e9))
         0))))

(defvar last-tick (clock))
(defvar gap 0.0)
(defun tick ()
  (let ((now (clock)))
    (setq gap (max gap (- now last-tick)) last-tick now)))

(defun marked (buffer)
  "The marked lines of BUFFER."
  (with-current-buffer buffer
    (save-excursion
      (mapcar (lambda (mark)
                (goto-char (overlay-start mark))
                (string-trim (buffer-substring-no-properties (point) (line-end-position))))
              (seq-filter (lambda (mark) (eq (overlay-buffer mark) buffer)) (reverse fx-lsp--marks))))))

(defun graph ()
  (list (cons 'name (buffer-name)) (cons 'text (buffer-string)) (cons 'mode (symbol-name major-mode))
        (cons 'readonly (and buffer-read-only t))))

(defun page ()
  (get-buffer "small.gate.benchmark.txt"))

(defun shows (text)
  "The page about a benchmark once it has TEXT."
  (when (page)
    (with-current-buffer (page)
      (revert-buffer t t t)
      (and (string-match-p text (buffer-string)) (buffer-string)))))

(scenario
  (let (shown)
    (run-with-timer 0 0.02 #'tick)
    (find-file (getenv "FX_FILE"))
    (setq source (current-buffer))
    (apply #'eglot (eglot--guess-contact))
    (wait "a problem" (lambda () (problems)))
    (note 'problems (vconcat (problems)))
    (note 'hover (hover "relu(x @ w)" "aten.relu"))
    (note 'gap gap)

    (go "x.sum()")
    (fx-lsp-show-graph)
    (setq shown (current-buffer))
    (note 'graph (graph))
    (go "x @ w")
    (fx-lsp--follow)
    (note 'related (vconcat (wait "lines that belong together" (lambda () (marked shown)))))
    (set-buffer shown)
    (goto-char (point-min))
    (search-forward "aten.mul")
    (fx-lsp--follow)
    (note 'source (vconcat (wait "a line of the code"
                                 (lambda () (and (seq-find (lambda (line) (string-match-p "return" line))
                                                           (marked source))
                                                 (marked source))))))
    (go "class Block")
    (forward-line 7)
    (fx-lsp-show-graph "backward")
    (note 'backward (graph))

    (set-buffer source)
    (fx-lsp-toggle-costs)
    (note 'costs (vconcat (mapcar (lambda (overlay)
                                    (list (cons 'line (line-number-at-pos (overlay-start overlay)))
                                          (cons 'text (substring-no-properties (overlay-get overlay 'after-string)))))
                                  (seq-filter (lambda (overlay) (overlay-get overlay 'after-string))
                                              (overlays-in (point-min) (point-max))))))
    (fx-lsp-toggle-costs)
    (note 'hidden (null fx-lsp--costs))

    (go "x.sum()")
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_ table &rest _)
                 (let ((rows (all-completions "" table)))
                   (note 'rows (vconcat rows))
                   (cl-find-if (lambda (row) (string-match-p "\\`[a-z]+:[^ ]+ +[+−~]" row)) rows)))))
      (fx-lsp-show-passes))
    (note 'pass (graph))

    (go "torch.relu")
    (delete-char (length "torch.relu"))
    (insert "torch.tanh")
    (eglot--signal-textDocument/didChange)
    (set-buffer shown)
    (wait "the graph of the edited text"
          (lambda () (with-current-buffer shown
                       (revert-buffer t t t)
                       (string-match-p "aten\\.tanh" (buffer-string)))))
    (note 'edited (graph))

    (go "x.sum()")
    (fx-lsp-bench '(:hosts ["local"] :what ["forward"]))
    (note 'benchmark (list (cons 'waited (and (page) t))
                           (cons 'measuring (wait "progress" (lambda () (shows "measuring on local"))))))
    (fx-lsp-stop-bench)
    (wait "a benchmark that is stopped" (lambda () (shows "has not been measured yet")))
    (go "x.sum()")
    (fx-lsp-bench '(:hosts ["local"] :what ["forward"] :variants ["eager"]))
    (note 'measured (wait "a benchmark" (lambda () (shows "\n  eager "))))
    (set-buffer source)
    (note 'saved (not (buffer-modified-p)))
    (set-buffer-modified-p nil)))
