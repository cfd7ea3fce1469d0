// Package page is the page of the admin API for a browser: its files, and the headers that keep everything else out.
package page

import (
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/admin"
)

//go:embed files
var files embed.FS

// policy allows the page's own files and requests to where it came from, and nothing else: no script or style within
// it, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// columnsFile has the columns of the tables that show parts of the status.
const columnsFile = "columns.js"

// Handler serves GET / and the files of the page below /page/.
func Handler() http.Handler {
	root, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the name is not one of a folder
	}
	columns, err := json.Marshal(map[string][]admin.Column{
		"listeners": admin.Columns[admin.Listener](), "upstreams": admin.Columns[admin.Upstream](), "endpoints": admin.Columns[admin.Endpoint](),
	})
	if err != nil {
		panic(err) // a column has no value that JSON lacks
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "index.html"
		if r.URL.Path != "/" {
			name = strings.TrimPrefix(r.URL.Path, "/page/")
		}
		if f, err := fs.Stat(root, name); name != columnsFile && (err != nil || f.IsDir()) {
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
		if name == columnsFile {
			h.Set("Content-Type", "text/javascript; charset=utf-8")
			_, _ = fmt.Fprintf(w, "export default %s;\n", columns) // the client may have gone
			return
		}
		http.ServeFileFS(w, r, root, name)
	})
}

// A Gate forwards the requests of one browser to the admin API, and refuses all other requests. The browser sends
// the token once, and uses a cookie afterwards. It is safe for concurrent use.
type Gate struct {
	host          string // host and port, as a request names them
	token, secret string
	used          atomic.Bool // the token is
	next          http.Handler
}

// NewGate returns a gate at a host and port that forwards to the API by a transport.
func NewGate(host string, to http.RoundTripper) *Gate {
	g := &Gate{host: host, token: rand.Text(), secret: rand.Text()}
	g.next = &httputil.ReverseProxy{
		Transport: to,
		Rewrite:   g.rewrite,
		ErrorLog:  log.New(io.Discard, "", 0), // a browser that goes is no error
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refuse(w, http.StatusBadGateway, err.Error())
		},
	}
	return g
}

// URL returns the address with the token.
func (g *Gate) URL() string { return fmt.Sprintf("http://%s/?token=%s", g.host, g.token) }

// rewrite leaves the cookie and the names of this host out of a request.
func (g *Gate) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "localhost", "localhost"
	r.Out.Header.Del("Cookie")
	r.Out.Header.Del("Origin")
}

// cookie is the name of the cookie. Cookies are for all ports of a host, so it has the port.
func (g *Gate) cookie() string {
	name := []byte("penstock-" + g.host)
	for i, c := range name {
		if c == ':' || c == '[' || c == ']' {
			name[i] = '_'
		}
	}
	return string(name)
}

// ServeHTTP implements [http.Handler].
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("token")
	switch {
	case r.Host != g.host: // a site with a name that leads to this machine
		refuse(w, http.StatusForbidden, fmt.Sprintf("host %q is not the host of this page: write %s", r.Host, g.host))
	case g.strange(r):
		refuse(w, http.StatusForbidden, "the request comes from a page of another site or another port")
	case token != "" && r.URL.Path == "/" && r.Method == http.MethodGet && (g.known(r) || g.exchange(token)):
		g.welcome(w)
	case !g.known(r) && g.used.Load() && equal(token, g.token):
		refuse(w, http.StatusForbidden, "another browser has already opened this page: run penstock page again for a new address")
	case !g.known(r):
		refuse(w, http.StatusForbidden, "this browser has not opened the page: open the whole address that penstock page has printed")
	case foreign(r):
		refuse(w, http.StatusForbidden, "the request comes from a page of another site or another port")
	default:
		g.next.ServeHTTP(w, r)
	}
}

// exchange reports whether a token is the right one, and is used for the first time.
func (g *Gate) exchange(token string) bool {
	return equal(token, g.token) && g.used.CompareAndSwap(false, true)
}

func (g *Gate) known(r *http.Request) bool {
	c, err := r.Cookie(g.cookie())
	return err == nil && equal(c.Value, g.secret)
}

// foreign reports whether a page of another site, or of another port of this host, has made a request.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none"
}

// strange reports whether a request says that a page of another site has made it. A browser names the site
// at least in front of changes.
func (g *Gate) strange(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Origin"), func(origin string) bool { return origin != "http://"+g.host })
}

// welcome gives the browser its cookie, and leads to the address without the token: by a page, since a
// redirection may be taken for a request of the site that the address was found at.
func (g *Gate) welcome(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: g.cookie(), Value: g.secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	answer(w, http.StatusOK, "text/html; charset=utf-8", `<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>penstock</title><a href="/">penstock</a>`)
}

func refuse(w http.ResponseWriter, code int, why string) {
	answer(w, code, "text/plain; charset=utf-8", "penstock page: "+why+"\n")
}

func answer(w http.ResponseWriter, code int, kind, text string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text) // the client may have gone
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
