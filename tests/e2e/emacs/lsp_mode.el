;; -*- lexical-binding: t -*-
;; A small file in lsp-mode, next to another Python server: problems, a graph, the passes, hosts.

(require 'lsp-mode)
(setq lsp-auto-guess-root t
      lsp-enable-snippet nil
      lsp-modeline-workspace-status-enable nil
      lsp-enable-suggest-server-download nil
      lsp-client-packages nil
      lsp-diagnostics-provider :flymake)

(lsp-register-client
 (make-lsp-client :new-connection (lsp-stdio-connection (split-string (getenv "FX_OTHER") "\n"))
                  :major-modes '(python-mode) :priority 1 :server-id 'other))

(defun problems ()
  (let (messages)
    (dolist (items (hash-table-values (lsp-diagnostics)))
      (dolist (item items)
        (push (gethash "message" item) messages)))
    messages))

(scenario
  (find-file (getenv "FX_FILE"))
  (lsp)
  (wait "both servers" (lambda () (cdr (lsp-workspaces))))
  (note 'servers (vconcat (mapcar (lambda (workspace) (lsp--client-server-id (lsp--workspace-client workspace)))
                                  (lsp-workspaces))))
  (note 'problems (vconcat (wait "a problem" #'problems)))
  (note 'status fx-lsp-status)
  (let ((source (current-buffer)))
    (go "x.sum()")
    (fx-lsp-show-graph)
    (note 'graph (list (cons 'name (buffer-name)) (cons 'text (buffer-string)) (cons 'readonly buffer-read-only)))
    (set-buffer source)
    (go "def gate")
    (let (rows)
      (cl-letf (((symbol-function 'completing-read)
                 (lambda (_prompt table &rest _)
                   (setq rows (all-completions "" table))
                   (car rows))))
        (fx-lsp-show-passes))
      (note 'rows (vconcat rows)))
    (set-buffer source)
    (let (hosts)
      (fx-lsp--request-async :workspace/executeCommand (list :command "fxLsp.hosts" :arguments [])
                             (lambda (answer) (setq hosts (plist-get answer :hosts)))
                             (lambda (failure) (note 'failure failure)))
      (wait "hosts" (lambda () hosts))
      (note 'hosts (vconcat (mapcar (lambda (host) (plist-get host :name)) hosts))))
    (set-buffer source)
    (set-buffer-modified-p nil)))
