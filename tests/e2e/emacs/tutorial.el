;; -*- lexical-binding: t -*-
;; The tutorial from page to page, in one session: what each page says of Emacs is done, and what it shows is read.

(setq eglot-sync-connect t
      eglot-send-changes-idle-time 0.1
      eglot-confirm-server-initiated-edits nil)

(defun open-file (name)
  "Visit a file beside the first one, as the source."
  (find-file (expand-file-name name (file-name-directory (getenv "FX_FILE"))))
  (setq source (current-buffer)))

(defun replace (old new)
  (go old)
  (delete-char (length old))
  (insert new)
  (eglot--signal-textDocument/didChange))

(scenario
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
