;;; fx-lsp.el --- The graphs PyTorch really runs -*- lexical-binding: t; -*-

;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1") (eglot "1.9"))
;; Keywords: languages, tools
;; URL: https://github.com/fx-lsp/fx-lsp
;; SPDX-License-Identifier: MIT

;;; Commentary:

;; (require 'fx-lsp), then M-x eglot in a Python buffer.  With lsp-mode instead,
;; M-x lsp starts it next to your other Python server.  M-x fx-lsp-show-graph
;; shows the graph of the function at point.

;;; Code:

(require 'cl-lib)
(require 'eglot)
(require 'python)
(require 'subr-x)
(require 'url-util)

(defgroup fx-lsp nil "Graphs of PyTorch code." :group 'tools)

(defcustom fx-lsp-command '("fx-lsp" "serve")
  "The command that runs the server, a list of strings."
  :type '(repeat string))

(defcustom fx-lsp-interpreter nil
  "The Python that has torch, or nil: the server finds it."
  :type '(choice (const nil) file))

(defcustom fx-lsp-sizes "names"
  "How sizes are shown that the code has names for: f32[B, T], f32[4, 8], or both."
  :type '(choice (const "names") (const "numbers") (const "both")))

(defcustom fx-lsp-trust nil
  "\"always\" or \"never\", if code of every project may run, or of none.
With nil, the server asks."
  :type '(choice (const nil) (const "always") (const "never")))

(defcustom fx-lsp-trace-timeout 120
  "Seconds that `fx-lsp-show-graph' waits for a trace."
  :type 'number)

(defvar python-ts-mode-hook)
(defvar eglot-confirm-server-edits)
(defvar eglot-confirm-server-initiated-edits)

(defvar fx-lsp-status "" "What the server was doing when it last told.")

(defun fx-lsp--options ()
  "Return the initial settings of the server."
  (append (list :sizes fx-lsp-sizes)
          (and fx-lsp-trust (list :trust fx-lsp-trust))
          (and fx-lsp-interpreter (list :interpreter fx-lsp-interpreter))))

(defun fx-lsp--contact (&optional _interactive)
  "The contact of the server, as `eglot-server-programs' wants it."
  (append fx-lsp-command (list :initializationOptions (fx-lsp--options))))

(add-to-list 'eglot-server-programs '((python-mode python-ts-mode) . fx-lsp--contact))

(cl-defmethod eglot-handle-notification (_server (_method (eql 'fxLsp/status)) &key message &allow-other-keys)
  "Note the server's status MESSAGE."
  (setq fx-lsp-status (or message "")))

;; lsp-mode starts all add-on servers of a buffer next to its main one.
(declare-function lsp--cur-position "lsp-mode")
(declare-function lsp-find-workspace "lsp-mode")
(declare-function lsp-register-client "lsp-mode")
(declare-function lsp-request "lsp-mode")
(declare-function lsp-request-async "lsp-mode")
(declare-function lsp-stdio-connection "lsp-mode")
(declare-function lsp-text-document-identifier "lsp-mode")
(declare-function make-lsp-client "lsp-mode")
(defvar lsp--cur-workspace)
(defvar lsp-managed-mode)
(defvar lsp-response-timeout)

(with-eval-after-load 'lsp-mode
  (lsp-register-client
   (make-lsp-client
    :new-connection (lsp-stdio-connection (lambda () fx-lsp-command))
    :major-modes '(python-mode python-ts-mode)
    :add-on? t
    :priority -3
    :server-id 'fx-lsp
    :initialization-options #'fx-lsp--options
    :notification-handlers
    (let ((handlers (make-hash-table :test 'equal)))
      (puthash "fxLsp/status"
               (lambda (_workspace status)
                 (setq fx-lsp-status (or (plist-get (fx-lsp--plist status) :message) "")))
               handlers)
      handlers))))

(defun fx-lsp--workspace ()
  "Return the workspace of the server of this buffer in lsp-mode, or nil."
  (and (bound-and-true-p lsp-managed-mode) (lsp-find-workspace 'fx-lsp (buffer-file-name))))

(defun fx-lsp--plist (value)
  "Return VALUE, an answer in lsp-mode, with plists in place of hash tables."
  (cond ((hash-table-p value)
         (let (plist)
           (maphash (lambda (key item)
                      (setq plist (append plist (list (intern (format ":%s" key)) (fx-lsp--plist item)))))
                    value)
           plist))
        ((vectorp value) (vconcat (mapcar #'fx-lsp--plist value)))
        ((consp value) (mapcar #'fx-lsp--plist value))
        (t value)))

(defun fx-lsp--uri ()
  "Return the URI of this buffer."
  (plist-get (if (fx-lsp--workspace) (lsp-text-document-identifier) (eglot--TextDocumentIdentifier)) :uri))

(defun fx-lsp--request (method params)
  "Return the answer of the server to METHOD, a keyword, with PARAMS."
  (let ((workspace (fx-lsp--workspace)))
    (if (not workspace)
        (jsonrpc-request (eglot--current-server-or-lose) method params :timeout fx-lsp-trace-timeout)
      (let ((lsp--cur-workspace workspace)
            (lsp-response-timeout fx-lsp-trace-timeout))
        (fx-lsp--plist (lsp-request (substring (symbol-name method) 1) params))))))

(defun fx-lsp--request-async (method params success failure)
  "Send METHOD, a keyword, with PARAMS.
SUCCESS is called with the answer, or FAILURE with an error, both as plists."
  (let ((workspace (fx-lsp--workspace)))
    (if (not workspace)
        (jsonrpc-async-request (eglot--current-server-or-lose) method params
                               :timeout fx-lsp-trace-timeout :success-fn success :error-fn failure)
      (let ((lsp--cur-workspace workspace))
        (lsp-request-async (substring (symbol-name method) 1) params
                           (lambda (answer) (funcall success (fx-lsp--plist answer)))
                           :error-handler (lambda (answer) (funcall failure (fx-lsp--plist answer)))
                           :mode 'detached)))))

(defun fx-lsp--target-at-point (functions)
  "The name of the innermost of FUNCTIONS around point, or nil."
  (let* ((line (1- (line-number-at-pos nil t)))
         (edge (lambda (function end) (plist-get (plist-get (plist-get function :range) end) :line)))
         (around (cl-remove-if-not
                  (lambda (function) (<= (funcall edge function :start) line (funcall edge function :end)))
                  functions)))
    (plist-get (car (cl-sort around #'> :key (lambda (function) (funcall edge function :start)))) :name)))

(defun fx-lsp--target (&optional otherwise)
  "The URI of the buffer, and the name of the target at point, traced or not yet.
The name is OTHERWISE, where that is given, if point is in no target."
  (let* ((uri (fx-lsp--uri))
         (known (fx-lsp--request :fxLsp/functions (list :uri uri))))
    (list uri (or (fx-lsp--target-at-point (append (plist-get known :functions) nil))
                  otherwise
                  (user-error "No traced function at point")))))

(defun fx-lsp--execute (command &rest arguments)
  "What the server answers to COMMAND with ARGUMENTS."
  (fx-lsp--request :workspace/executeCommand (list :command command :arguments (vconcat arguments))))

(defun fx-lsp-pick-interpreter ()
  "Pick the interpreter that traces the project of this buffer.
It counts until the server ends."
  (interactive)
  (fx-lsp--execute "fxLsp.pickInterpreter" (fx-lsp--uri)))

(defun fx-lsp-trust ()
  "Ask whether the code of the project of this buffer may run."
  (interactive)
  (fx-lsp--execute "fxLsp.trust" (fx-lsp--uri)))

(defun fx-lsp-revoke-trust ()
  "Revoke trust in the project of this buffer: no more of its code is run."
  (interactive)
  (fx-lsp--execute "fxLsp.revokeTrust" (fx-lsp--uri)))

(defun fx-lsp-save-kernel (&optional file)
  "Save the Triton kernels of the function at point as a file, and visit it.
With a prefix argument ask for the FILE, which is otherwise one beside the
source.  Once more, there or in the source: bring it up to date; edits stay."
  (interactive (list (and current-prefix-arg (read-file-name "Kernels: "))))
  (unless (fx-lsp--workspace)
    (eglot--signal-textDocument/didChange)) ; edits are refused for a text that the server has not seen
  (let* ((target (fx-lsp--target "")) ; a file of kernels says itself whose they are
         (eglot-confirm-server-initiated-edits nil)
         (eglot-confirm-server-edits nil)
         (path (plist-get (apply #'fx-lsp--execute "fxLsp.writeKernel"
                                 (append target (and file (list (expand-file-name file)))))
                          :path)))
    (when path
      (let ((visiting (find-buffer-visiting path)))
        (when (and visiting (not (buffer-modified-p visiting)) (not (verify-visited-file-modtime visiting)))
          (with-current-buffer visiting (revert-buffer t t t))))
      (pop-to-buffer (find-file-noselect path)))))

;; The server writes the file of a view again with every new trace.
(defun fx-lsp--show (&rest arguments)
  "Show the view of ARGUMENTS for fxLsp.showStage, read-only and up to date."
  (let ((path (plist-get (apply #'fx-lsp--execute "fxLsp.showStage" arguments) :path)))
    (when path
      (pop-to-buffer (fx-lsp--view path (current-buffer))))))

(defun fx-lsp--view (path source)
  "A buffer with the view at PATH, shown from the buffer SOURCE."
  (let ((buffer (let ((python-mode-hook nil) (python-ts-mode-hook nil)
                      (revert-without-query '("")))
                  (find-file-noselect path))))
    (with-current-buffer buffer
      (setq buffer-read-only t)
      (auto-revert-mode 1))
    (fx-lsp--link buffer source)
    buffer))

;; The lines of the code and of views that belong to the one at point.
(defface fx-lsp-related '((t :inherit highlight)) "Lines that belong to the one at point.")

(defvar-local fx-lsp--source nil "The buffer that this view was shown from.")
(defvar fx-lsp--timer nil "The timer that follows point while views are shown.")
(defvar fx-lsp--place nil "The place that `fx-lsp--follow' asked about last.")
(defvar fx-lsp--marks nil "The overlays on related lines.")

(defun fx-lsp--link (view source)
  "Follow point while VIEW, shown from the buffer SOURCE, is a buffer."
  (with-current-buffer view
    (setq fx-lsp--source (or (buffer-local-value 'fx-lsp--source source) source)))
  (unless fx-lsp--timer
    (setq fx-lsp--timer (run-with-idle-timer 0.1 t #'fx-lsp--follow))))

(defun fx-lsp--is-view (buffer)
  "Return non-nil if BUFFER is a view."
  (buffer-local-value 'fx-lsp--source buffer))

(defun fx-lsp--position ()
  "Return the position of point, in a view of its line."
  (cond (fx-lsp--source (list :line (1- (line-number-at-pos nil t)) :character 0))
        ((fx-lsp--workspace) (lsp--cur-position))
        (t (eglot--pos-to-lsp-position))))

(defun fx-lsp--unmark ()
  "Delete the overlays on related lines."
  (mapc #'delete-overlay fx-lsp--marks)
  (setq fx-lsp--marks nil))

(defun fx-lsp--follow ()
  "Mark the lines in all windows that belong to point, beside a view."
  (let* ((shown (mapcar #'window-buffer (window-list)))
         (place (list (current-buffer) (point) (buffer-modified-tick) shown))
         (source (or fx-lsp--source
                     (and (or (fx-lsp--workspace) (bound-and-true-p eglot--managed-mode)) (current-buffer)))))
    (cond
     ((cl-notany #'fx-lsp--is-view (buffer-list))
      (fx-lsp--unmark)
      (when fx-lsp--timer (cancel-timer fx-lsp--timer))
      (setq fx-lsp--timer nil))
     ((not (and (buffer-live-p source) (cl-some #'fx-lsp--is-view shown)))
      (fx-lsp--unmark)
      (setq fx-lsp--place nil))
     ((not (equal place fx-lsp--place))
      (setq fx-lsp--place place)
      (let ((params (list :uri (if fx-lsp--source (fx-lsp--file-uri (buffer-file-name)) (fx-lsp--uri))
                          :position (fx-lsp--position))))
        (with-current-buffer source
          (fx-lsp--request-async :fxLsp/related params
                                 (lambda (answer) (when (eq place fx-lsp--place) (fx-lsp--mark answer)))
                                 #'ignore)))))))

(defun fx-lsp--file-uri (path)
  "Return PATH as a URI."
  (concat "file://" (url-hexify-string (file-truename path) url-path-allowed-chars)))

(defun fx-lsp--mark (related)
  "Mark the lines of RELATED, the answer about a place.
Other windows with a view scroll to its first line, if they show none."
  (fx-lsp--unmark)
  (dolist (item (append related nil))
    (let* ((path (url-unhex-string (string-remove-prefix "file://" (plist-get item :uri))))
           (buffer (find-buffer-visiting path))
           (starts (and buffer (fx-lsp--mark-in buffer (plist-get item :ranges)))))
      (dolist (window (and starts (fx-lsp--is-view buffer) (get-buffer-window-list buffer)))
        (unless (or (eq window (selected-window))
                    (cl-some (lambda (start) (pos-visible-in-window-p start window)) starts))
          (set-window-point window (car starts)))))))

(defun fx-lsp--mark-in (buffer ranges)
  "Mark the lines of RANGES in BUFFER, and return where they begin."
  (with-current-buffer buffer
    (save-excursion
      (save-restriction
        (widen)
        (mapcar (lambda (range)
                  (let* ((first (plist-get (plist-get range :start) :line))
                         (last (plist-get (plist-get range :end) :line)))
                    (goto-char (point-min))
                    (forward-line first)
                    (push (make-overlay (point) (line-beginning-position (+ 2 (- last first)))) fx-lsp--marks)
                    (overlay-put (car fx-lsp--marks) 'face 'fx-lsp-related)
                    (point)))
                ranges)))))

(defun fx-lsp-show-graph (&optional stage)
  "Show a graph of the function at point, read-only and kept up to date.
With a prefix argument ask for the STAGE: forward, backward, joint, inference."
  (interactive
   (list (and current-prefix-arg
              (completing-read "Stage: " '("forward" "backward" "joint" "inference")))))
  (apply #'fx-lsp--show (append (fx-lsp--target) (and stage (list stage)))))

(defun fx-lsp-show-summary ()
  "Show what the function at point costs, by submodule and by line."
  (interactive)
  (apply #'fx-lsp--show (append (fx-lsp--target) '("summary"))))

(defun fx-lsp-show-breaks ()
  "Show the graphs and graph breaks of the function at point in torch.compile."
  (interactive)
  (apply #'fx-lsp--show (append (fx-lsp--target) '("breaks" "breaks"))))

(defun fx-lsp-show-recompiles ()
  "Show the recompilations of the function at point."
  (interactive)
  (apply #'fx-lsp--show (append (fx-lsp--target) '("recompiles" "recompiles"))))

(defun fx-lsp-show-fusion (&optional inductor)
  "Show the kernels of the function at point, and why they are not one.
INDUCTOR, the prefix argument, shows those of Inductor instead."
  (interactive "P")
  (let ((stage (if inductor "fusion:inductor" "fusion")))
    (apply #'fx-lsp--show (append (fx-lsp--target) (list stage "fusion")))))

(defun fx-lsp-show-passes (&optional all)
  "Show one of the compiler's stages of the function at point.
That is what a pass changed, or the graph of a stage that is no pass.  ALL, the
prefix argument, offers the passes that changed nothing as well."
  (interactive "P")
  (let* ((target (fx-lsp--target))
         (steps (cl-remove-if (lambda (step) (and (not all) (eq (plist-get step :unchanged) t)))
                              (append (apply #'fx-lsp--execute "fxLsp.passes" target) nil)))
         (rows (mapcar (lambda (step) (cons (fx-lsp--row step) step)) steps))
         (step (and rows (cdr (assoc (completing-read "Stage: " (fx-lsp--in-order rows) nil t) rows))))
         (before (and (plist-get step :diff) (plist-get step :before))))
    (when step
      (apply #'fx-lsp--show (append target (list (plist-get step :stage) "passes") (and before (list before)))))))

;; The server asks where to measure, and whether it may: nothing waits for its answer here.
(defun fx-lsp-bench (&optional options)
  "Measure the function at point in the background, and display the page about it.
With a prefix argument ask for OPTIONS: a plist of what `fxLsp.bench' takes."
  (interactive (list (and current-prefix-arg (fx-lsp--read-options))))
  (let ((source (current-buffer)))
    (fx-lsp--request-async
     :workspace/executeCommand
     (list :command "fxLsp.bench" :arguments (vconcat (fx-lsp--target) (and options (list options))))
     (lambda (shown)
       (when (plist-get shown :path)
         (display-buffer (fx-lsp--view (plist-get shown :path) source))))
     (lambda (failure) (message "fx-lsp: %s" (plist-get failure :message))))))

(defun fx-lsp-stop-bench ()
  "Stop what is being measured of the function at point."
  (interactive)
  (apply #'fx-lsp--execute "fxLsp.stopBench" (fx-lsp--target)))

;; An overlay for each line, which an edit of the line removes: the server knows nothing of the new line yet.
(defvar-local fx-lsp--costs nil "The overlays that show what lines of this buffer cost.")

(defun fx-lsp-toggle-costs ()
  "Show or hide the share of each line in the cost of its function.
That is the share of the time that `fx-lsp-bench-by-line' measured, otherwise of
the FLOPs or bytes of its graphs."
  (interactive)
  (if (null fx-lsp--costs)
      (let ((targets (fx-lsp--request :fxLsp/lineCosts (list :uri (fx-lsp--uri)))))
        (seq-doseq (target targets)
          (seq-doseq (line (plist-get target :lines))
            (fx-lsp--show-cost line))))
    (mapc #'delete-overlay fx-lsp--costs)
    (setq fx-lsp--costs nil)))

(defun fx-lsp--show-cost (line)
  "Show the share of LINE in the cost of its function behind the line."
  (let* ((share (plist-get line :share))
         (face (cond ((>= share 0.5) 'error) ((>= share 0.1) 'warning) (t 'shadow)))
         (bar (aref "▁▂▃▄▅▆▇█" (max 0 (1- (round (* 8 share)))))))
    (when (>= share 0.005)
      (save-excursion
        (save-restriction
          (widen)
          (goto-char (point-min))
          (forward-line (plist-get line :line))
          (let ((overlay (make-overlay (line-beginning-position) (line-end-position))))
            (overlay-put overlay 'after-string (propertize (format "  %c %.0f%%" bar (* 100 share)) 'face face))
            (overlay-put overlay 'modification-hooks (list (lambda (changed &rest _) (delete-overlay changed))))
            (push overlay fx-lsp--costs)))))))

(defun fx-lsp-bench-by-line ()
  "Measure each line of the function at point in eager PyTorch."
  (interactive)
  (fx-lsp-bench '(:byLine t)))

(defconst fx-lsp--variants
  '("eager" "symbolic_trace" "torchscript" "compile" "compile reduce-overhead" "compile max-autotune"
    "compile cudagraphs" "kernels" "inductor-kernels")
  "What a function can be measured as.")

(defun fx-lsp--read-options ()
  "Ask for hosts and how to measure; leave empty for the default."
  (let* ((hosts (mapcar (lambda (host) (plist-get host :name)) (plist-get (fx-lsp--execute "fxLsp.hosts") :hosts)))
         (some (lambda (prompt known) (vconcat (completing-read-multiple prompt known nil t)))))
    (cl-loop for (key value) in
             (list (list :hosts (funcall some "Hosts: " hosts))
                   (list :what (funcall some "What (forward, both): " '("forward" "backward" "both")))
                   (list :variants (funcall some "Variants (all that work): " fx-lsp--variants))
                   (list :inputs (read-string "Inputs (as traced): "))
                   (list :sweep (read-string "Sweep, as in N=1024..65536 (none): ")))
             unless (seq-empty-p value) append (list key value))))

(defun fx-lsp--row (step)
  "One line about STEP."
  (cl-destructuring-bind (&key stage title ops change note &allow-other-keys) step
    (format "%-34s %-14s %s" stage
            (cond ((not (equal change "")) change) ((> ops 0) (format "%d ops" ops)) (t ""))
            (if (equal note "") title note))))

(defun fx-lsp--in-order (rows)
  "Return a completion table of ROWS in their order."
  (lambda (text predicate action)
    (if (eq action 'metadata)
        '(metadata (display-sort-function . identity) (cycle-sort-function . identity))
      (complete-with-action action rows text predicate))))

(provide 'fx-lsp)
;;; fx-lsp.el ends here
