;; -*- lexical-binding: t -*-
;; The tutorial from page to page, in one session: what each page says of Emacs is done, and what it shows is read.

(require 'json)
(setq fx-lsp-command (split-string (getenv "FX_SERVER") "\n")
      fx-lsp-interpreter (getenv "FX_PYTHON")
      eglot-connect-timeout 60
      eglot-sync-connect t
      eglot-send-changes-idle-time 0.1
      eglot-confirm-server-initiated-edits nil
      debug-on-error nil)

(defvar result nil)
(defvar source nil)
(defun note (key value) (push (cons key value) result))

(defun wait (what condition)
  "Wait until CONDITION returns something and return it."
  (let ((deadline (+ (float-time) 120)) value)
    (while (not (setq value (funcall condition)))
      (when (> (float-time) deadline)
        (error "waited for %s; status: %s; problems: %S" what fx-lsp-status (problems)))
      (accept-process-output nil 0.05))
    value))

(defun open-file (name)
  "Visit a file beside the first one, as the source."
  (find-file (expand-file-name name (file-name-directory (getenv "FX_FILE"))))
  (setq source (current-buffer)))

(defun problems ()
  "The problems of the source; a batch has no command loop that would start flymake in a second file."
  (with-current-buffer source (flymake-start))
  (mapcar (lambda (d) (list (cons 'message (flymake-diagnostic-text d))
                            (cons 'text (buffer-substring-no-properties
                                         (flymake-diagnostic-beg d) (flymake-diagnostic-end d)))))
          (with-current-buffer source (flymake-diagnostics))))

(defun go (text)
  (set-buffer source)
  (goto-char (point-min))
  (search-forward text)
  (goto-char (match-beginning 0)))

(defun replace (old new)
  (go old)
  (delete-char (length old))
  (insert new)
  (eglot--signal-textDocument/didChange))

(defun hover (text part)
  "The hover on TEXT, once it has PART."
  (wait (concat "a hover with " part)
        (lambda ()
          (go text)
          (let* ((answer (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams)))
                 (shown (plist-get (plist-get answer :contents) :value)))
            (and shown (string-match-p (regexp-quote part) shown) shown)))))

(condition-case failure
    (progn
      ;; 1. A model, 2. Its graph
      (open-file "model.py")
      (apply #'eglot (eglot--guess-contact))
      (note 'costs (hover "rms_norm(x, weight, eps" "saves"))
      (go "scale = ")
      (fx-lsp-show-graph)
      (note 'forward (buffer-string))
      (go "scale = ")
      (fx-lsp-show-graph "backward")
      (note 'backward (buffer-string))
      (note 'hover (hover "rsqrt(" "aten.rsqrt"))

      ;; 3. A mistake
      (open-file "mistake.py")
      (note 'mistake (vconcat (wait "the mistake" #'problems)))
      (replace "2 * width" "width")
      (wait "no mistake" (lambda () (null (problems))))
      (replace "nn.Linear(width" "nn.Linear(2 * width")
      (wait "the mistake again" #'problems)
      (set-buffer-modified-p nil)

      ;; 4. Its memory
      (open-file "model.py")
      (go "self.block(x)")
      (fx-lsp-show-summary)
      (note 'summary (buffer-string))
      (go "x = self.block(x)")
      (cl-letf ((last-nonmenu-event ?x) ; chosen with the keyboard
                ((symbol-function 'completing-read)
                 (lambda (_ table &rest _)
                   (let ((rows (all-completions "" table)))
                     (note 'actions (vconcat rows))
                     (cl-find-if (lambda (row) (string-match-p "call it through torch.utils.checkpoint" row)) rows)))))
        (eglot-code-actions (line-beginning-position) (line-end-position) nil t))
      (note 'checkpointed (with-current-buffer source (buffer-string)))
      (eglot--signal-textDocument/didChange)
      (note 'saved (hover "Classifier(nn.Module)" "66 KiB"))
      (set-buffer source)
      (revert-buffer t t t)
      (hover "Classifier(nn.Module)" "643 KiB")

      ;; 5. A kernel
      (go "scale = ")
      (fx-lsp-save-kernel)
      (note 'kernel (buffer-string))
      (note 'file (buffer-name)))
  (error (note 'error (error-message-string failure))))

(with-temp-file (getenv "FX_RESULT")
  (insert (json-encode result)))
(ignore-errors (eglot-shutdown-all))
(kill-emacs 0)
