;;; fx-lsp.el --- The graphs PyTorch really runs, through eglot -*- lexical-binding: t; -*-

;; Package-Requires: ((emacs "28.1") (eglot "1.9"))
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; (require 'fx-lsp), then M-x eglot in a Python buffer.  M-x fx-lsp-show-graph
;; shows the graph of the function at point.

;;; Code:

(require 'cl-lib)
(require 'eglot)
(require 'python)

(defgroup fx-lsp nil "Graphs of PyTorch code." :group 'tools)

(defcustom fx-lsp-command '("fx-lsp" "serve")
  "The command that runs the server, a list of strings."
  :type '(repeat string))

(defcustom fx-lsp-interpreter nil
  "The Python that has torch, or nil: the server finds it."
  :type '(choice (const nil) file))

(defcustom fx-lsp-trace-timeout 120
  "Seconds that `fx-lsp-show-graph' waits for a trace."
  :type 'number)

(defvar python-ts-mode-hook)

(defvar fx-lsp-status "" "What the server was doing when it last told.")

(defun fx-lsp--contact (&optional _interactive)
  "The contact of the server, as `eglot-server-programs' wants it."
  (append fx-lsp-command
          (and fx-lsp-interpreter
               (list :initializationOptions (list :interpreter fx-lsp-interpreter)))))

(add-to-list 'eglot-server-programs '((python-mode python-ts-mode) . fx-lsp--contact))

(cl-defmethod eglot-handle-notification (_server (_method (eql 'fxLsp/status)) &key message &allow-other-keys)
  "Note the server's status MESSAGE."
  (setq fx-lsp-status (or message "")))

(defun fx-lsp--target-at-point (names)
  "The innermost of NAMES that point is in."
  (let ((here (or (python-info-current-defun) "")))
    (car (sort (cl-remove-if-not
                (lambda (name) (or (equal name here) (string-prefix-p (concat name ".") here)))
                names)
               (lambda (a b) (> (length a) (length b)))))))

(defun fx-lsp-show-graph (&optional stage)
  "Show a graph of the function at point, read-only and kept up to date.
With a prefix argument ask for the STAGE: forward, backward, joint, inference."
  (interactive
   (list (and current-prefix-arg
              (completing-read "Stage: " '("forward" "backward" "joint" "inference")))))
  (let* ((server (eglot--current-server-or-lose))
         (document (eglot--TextDocumentIdentifier))
         (lenses (jsonrpc-request server :textDocument/codeLens (list :textDocument document)))
         (names (mapcar (lambda (lens) (aref (plist-get (plist-get lens :command) :arguments) 1)) lenses))
         (name (or (fx-lsp--target-at-point names) (user-error "No traced function at point")))
         (shown (jsonrpc-request
                 server :workspace/executeCommand
                 (list :command "fxLsp.showStage"
                       :arguments (vconcat (list (plist-get document :uri) name) (and stage (list stage))))
                 :timeout fx-lsp-trace-timeout))
         (path (plist-get shown :path)))
    (when path
      ;; The server writes the file again with every new trace.
      (let ((buffer (let ((python-mode-hook nil) (python-ts-mode-hook nil))
                      (find-file-noselect path))))
        (with-current-buffer buffer
          (setq buffer-read-only t)
          (auto-revert-mode 1))
        (pop-to-buffer buffer)))))

(provide 'fx-lsp)
;;; fx-lsp.el ends here
