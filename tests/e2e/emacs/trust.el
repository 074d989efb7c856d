;; -*- lexical-binding: t -*-
;; The question whether code of the project may run: asked, answered, revoked.

(defvar questions nil)
(defun refused () (string-match-p "not trusted" fx-lsp-status))

(defun traced ()
  (let* ((place (list :textDocument (eglot--TextDocumentIdentifier) :position '(:line 3 :character 5)))
         (answer (jsonrpc-request (eglot-current-server) :textDocument/hover place)))
    (string-match-p "f32\\[2, 3\\]" (or (plist-get (plist-get answer :contents) :value) ""))))

(scenario
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
    (set-buffer-modified-p nil)))
