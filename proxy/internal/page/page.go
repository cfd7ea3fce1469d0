// Package page is the page of the admin API for a browser: its files, and the headers that keep everything else out.
package page

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"
)

//go:embed files
var files embed.FS

// policy allows the page's own files and requests to where it came from, and nothing else: no script or style within
// it, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// Handler serves GET / and the files of the page below /page/.
func Handler() http.Handler {
	root, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the name is not one of a folder
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "index.html"
		if r.URL.Path != "/" {
			name = strings.TrimPrefix(r.URL.Path, "/page/")
		}
		if f, err := fs.Stat(root, name); err != nil || f.IsDir() {
			http.NotFound(w, r) // there are no lists of files
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // the next one may be of another version
		http.ServeFileFS(w, r, root, name)
	})
}
