;; -*- lexical-binding: t -*-
;; A small file in eglot: problems, hovers, a graph that follows the unsaved buffer.

(require 'json)
(setq fx-lsp-command (split-string (getenv "FX_SERVER") "\n")
      fx-lsp-interpreter (getenv "FX_PYTHON")
      eglot-connect-timeout 60
      eglot-send-changes-idle-time 0.1
      auto-revert-interval 1
      debug-on-error nil)

(defvar result nil)
(defvar last-tick (float-time))
(defvar gap 0.0)
(defun note (key value) (push (cons key value) result))
(defun tick ()
  (setq gap (max gap (- (float-time) last-tick)) last-tick (float-time)))

(defun wait (what condition)
  "Wait until CONDITION returns something and return it."
  (let ((deadline (+ (float-time) 120)) found)
    (while (not (setq found (funcall condition)))
      (when (> (float-time) deadline)
        (error "waited for %s; status: %s; problems: %S" what fx-lsp-status (problems)))
      (accept-process-output nil 0.05))
    found))

(defun problems ()
  (mapcar (lambda (d) (list (cons 'message (flymake-diagnostic-text d))
                            (cons 'text (buffer-substring-no-properties
                                         (flymake-diagnostic-beg d) (flymake-diagnostic-end d)))))
          (with-current-buffer source (flymake-diagnostics))))

(defun go (text)
  (set-buffer source)
  (goto-char (point-min))
  (search-forward text)
  (goto-char (match-beginning 0)))

(defun hover (text)
  (go text)
  (let ((answer (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams))))
    (plist-get (plist-get answer :contents) :value)))

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

(condition-case failure
    (let (shown)
      (run-with-timer 0 0.02 #'tick)
      (find-file (getenv "FX_FILE"))
      (defvar source (current-buffer))
      (apply #'eglot (eglot--guess-contact))
      (wait "a problem" (lambda () (problems)))
      (note 'problems (vconcat (problems)))
      (note 'hover (wait "a hover" (lambda () (hover "relu(x @ w)"))))
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
      (set-buffer-modified-p nil))
  (error (note 'error (error-message-string failure))))

(with-temp-file (getenv "FX_RESULT")
  (insert (json-encode result)))
(ignore-errors (eglot-shutdown-all))
(kill-emacs 0)
