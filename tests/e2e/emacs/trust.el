;; -*- lexical-binding: t -*-
;; The question whether code of the project may run: asked, answered, revoked.

(require 'json)
(setq fx-lsp-command (split-string (getenv "FX_SERVER") "\n")
      fx-lsp-interpreter (getenv "FX_PYTHON")
      eglot-connect-timeout 60)

(defvar result nil)
(defvar questions nil)
(defun note (key value) (push (cons key value) result))

(defun wait (what condition)
  "Wait until CONDITION returns something and return it."
  (let ((deadline (+ (float-time) 120)) found)
    (while (not (setq found (funcall condition)))
      (when (> (float-time) deadline)
        (error "waited for %s; status: %s" what fx-lsp-status))
      (accept-process-output nil 0.05))
    found))

(defun refused () (string-match-p "not trusted" fx-lsp-status))

(defun traced ()
  (let* ((place (list :textDocument (eglot--TextDocumentIdentifier) :position '(:line 3 :character 5)))
         (answer (jsonrpc-request (eglot-current-server) :textDocument/hover place)))
    (string-match-p "f32\\[2, 3\\]" (or (plist-get (plist-get answer :contents) :value) ""))))

(condition-case failure
    (cl-letf (((symbol-function 'completing-read)
               (lambda (prompt table &rest _)
                 (push (list (cons 'prompt prompt) (cons 'choices (vconcat (all-completions "" table)))) questions)
                 "Trust")))
      (find-file (getenv "FX_FILE"))
      (apply #'eglot (eglot--guess-contact))
      (wait "the question" (lambda () questions))
      (wait "a trace" #'traced)
      (fx-lsp-revoke-trust)
      (wait "a refusal" (lambda () (and (refused) (not (traced)))))
      (note 'traced (and (traced) t))
      (let ((again 0.0))
        (wait "another question"
              (lambda ()
                (when (> (float-time) again) ; as somebody would who sees none
                  (setq again (+ (float-time) 20))
                  (fx-lsp-trust))
                (cdr questions))))
      (wait "another trace" #'traced)
      (note 'questions (vconcat (reverse questions)))
      (set-buffer-modified-p nil))
  (error (note 'error (error-message-string failure))))

(with-temp-file (getenv "FX_RESULT")
  (insert (json-encode result)))
(ignore-errors (eglot-shutdown-all))
(kill-emacs 0)
