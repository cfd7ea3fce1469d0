package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"path/filepath"
)

// small is the size up to which a file is kept in memory.
const small = 16 << 10

// A site has all pages by path. All loops read it, and nobody changes it.
type site map[string]*page

type page struct {
	head string // without the date, and the field that says whether another response follows
	body []byte
	file *os.File // owned by the site; nil: body has everything
	size int64
}

var (
	badRequest = failure(http.StatusBadRequest, "")
	notFound   = failure(http.StatusNotFound, "")
	notAllowed = failure(http.StatusMethodNotAllowed, "Allow: GET, HEAD\r\n")
	tooLarge   = failure(http.StatusRequestHeaderFieldsTooLarge, "")
)

func failure(status int, fields string) *page {
	p := &page{body: fmt.Appendf(nil, "%d %s\n", status, http.StatusText(status))}
	p.size = int64(len(p.body))
	p.describe(status, fields+"Content-Type: text/plain\r\n")
	return p
}

func (p *page) describe(status int, fields string) {
	p.head = fmt.Sprintf("HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n", status, http.StatusText(status), fields, p.size)
}

func (s site) find(r *http.Request) *page {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed
	}
	return cmp.Or(s[r.URL.Path], notFound)
}

// open makes a site from the regular files below a directory, as they are now.
func open(dir string) (site, error) {
	s := site{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		p, err := openPage(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		at := path.Join("/", filepath.ToSlash(below))
		s[at] = p
		if base := path.Base(at); base == "index.html" {
			s[at[:len(at)-len(base)]] = p
		}
		return err
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func openPage(name string) (*page, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	p := &page{file: f, size: info.Size()}
	if p.size <= small {
		defer f.Close()
		p.file, p.body = nil, make([]byte, p.size)
		if _, err := io.ReadFull(f, p.body); err != nil {
			return nil, err
		}
	}
	kind := cmp.Or(mime.TypeByExtension(path.Ext(name)), "application/octet-stream")
	p.describe(http.StatusOK, "Content-Type: "+kind+"\r\n")
	return p, nil
}

func (s site) close() {
	for _, p := range s {
		if p.file != nil {
			p.file.Close()
		}
	}
}
