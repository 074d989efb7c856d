;; -*- lexical-binding: t -*-
;; What the scenarios share: the server, waiting, places in the source, and writing down what was found.

(require 'json)
(require 'jsonrpc)
(setq fx-lsp-command (split-string (getenv "FX_SERVER") "\n")
      fx-lsp-interpreter (getenv "FX_PYTHON")
      fx-lsp-trace-timeout 300
      eglot-connect-timeout 300
      jsonrpc-default-request-timeout 300
      lsp-response-timeout 300
      debug-on-error nil)

(defvar result nil)
(defvar source nil)
(defun note (key value) (push (cons key value) result))

(defun wait (what condition)
  "Wait until CONDITION returns something and return it."
  (let ((deadline (+ (float-time) 300)) found)
    (while (not (setq found (funcall condition)))
      (when (> (float-time) deadline)
        (error "waited for %s; status: %s; problems: %S" what fx-lsp-status
               (and source (fboundp 'flymake-diagnostics) (problems))))
      (accept-process-output nil 0.05))
    found))

(defun problems ()
  "The problems of the source; a batch has no command loop that would start flymake in a second file."
  (with-current-buffer source
    (flymake-start)
    (mapcar (lambda (d) (list (cons 'message (flymake-diagnostic-text d))
                              (cons 'text (buffer-substring-no-properties
                                           (flymake-diagnostic-beg d) (flymake-diagnostic-end d)))))
            (flymake-diagnostics))))

(defun go (text)
  (set-buffer source)
  (goto-char (point-min))
  (search-forward text)
  (goto-char (match-beginning 0)))

(defun hover (text part)
  "The hover on TEXT, once it has PART."
  (wait (concat "a hover with " part)
        (lambda ()
          (go text)
          (let* ((answer (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams)))
                 (shown (plist-get (plist-get answer :contents) :value)))
            (and shown (string-match-p (regexp-quote part) shown) shown)))))

(defmacro scenario (&rest body)
  "Do BODY, write down what was found, or the error, and end."
  `(progn
     (condition-case failure
         (progn ,@body)
       (error (note 'error (error-message-string failure))))
     (with-temp-file (getenv "FX_RESULT")
       (insert (json-encode result)))
     (ignore-errors (eglot-shutdown-all))
     (kill-emacs 0)))
