package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// A request is a kind of request to the API.
type request struct {
	method, path string
	// forms are the sets of parameters that it takes: all of one set, and no others.
	forms  [][]string
	answer func(s *Server, ctx context.Context, a *arguments) (any, error)
}

// requests are all kinds of requests. A request that does not match one exactly is an error
// and changes nothing. A misspelled or empty parameter may have been an important one.
var requests = []request{
	{http.MethodGet, "/status", [][]string{{}}, (*Server).status},
	{http.MethodGet, "/sessions", [][]string{{}}, (*Server).sessions},
	{http.MethodGet, "/why", [][]string{{"for"}, {"for", "session"}, {"for", "source"}, {"for", "endpoint"}, {"for", "upstream"}, {"for", "listener"}}, (*Server).why},
	{http.MethodGet, "/generations", [][]string{{}}, (*Server).generations},
	{http.MethodGet, "/metrics", [][]string{{}}, (*Server).metrics},
	{http.MethodGet, "/profile", [][]string{{"seconds"}}, (*Server).profile},
	{http.MethodPost, "/plan", [][]string{{}, {"config"}}, (*Server).plan}, // changes nothing, but opens files
	{http.MethodPost, "/reload", [][]string{{}, {"confirm"}, {"confirm", "rollback_if"}}, (*Server).reload},
	{http.MethodPost, "/confirm", [][]string{{}, {"generation"}}, (*Server).confirm},
	{http.MethodPost, "/rollback", [][]string{{}}, (*Server).rollback},
	{http.MethodPost, "/drain", [][]string{{}, {"listener"}, {"upstream", "endpoint"}, {"upstream", "endpoint", "undo"}}, (*Server).drain},
	{http.MethodPost, "/weight", [][]string{{"upstream", "endpoint", "weight"}}, (*Server).weight},
	{http.MethodPost, "/split", [][]string{{"listener", "route", "percent"}}, (*Server).split},
	{http.MethodPost, "/leave", [][]string{{}}, (*Server).leave}, // from a successor
}

// arguments are the values of a request's parameters; absent ones are zero.
type arguments struct {
	listener, upstream, endpoint string
	session, source              string
	window                       time.Duration
	config, rollbackIf           string
	confirm                      time.Duration
	generation, weight, route    int
	seconds                      int
	undo                         bool
	percent                      map[string]float64
}

// parameters parse the values of one parameter in their order. No value is empty.
var parameters = map[string]func(a *arguments, values []string) error{
	"listener":    func(a *arguments, v []string) error { return text(&a.listener, v) },
	"upstream":    func(a *arguments, v []string) error { return text(&a.upstream, v) },
	"endpoint":    func(a *arguments, v []string) error { return text(&a.endpoint, v) },
	"rollback_if": func(a *arguments, v []string) error { return text(&a.rollbackIf, v) },
	"generation":  func(a *arguments, v []string) error { return number(&a.generation, 1, v) },
	"weight":      func(a *arguments, v []string) error { return number(&a.weight, 0, v) },
	"route":       func(a *arguments, v []string) error { return number(&a.route, 0, v) },
	"seconds":     profileTime,
	"for":         whyTime,
	"session":     func(a *arguments, v []string) error { return text(&a.session, v) },
	"source":      whySource,
	"config":      absolute,
	"confirm":     confirmTime,
	"undo":        undo,
	"percent":     func(a *arguments, v []string) (err error) { a.percent, err = ParsePercent(v); return err },
}

// placeholders stand for values in the shape of a request.
var placeholders = map[string]string{
	"listener": "NAME", "upstream": "NAME", "endpoint": "NAME", "rollback_if": "COUNTER>N", "generation": "N", "weight": "N",
	"route": "N", "seconds": "N", "for": "TIME", "session": "CLIENT", "source": "ADDRESS", "config": "/PATH", "confirm": "TIME", "undo": "true", "percent": "NAME:N",
}

// once returns the value of a parameter that may occur once.
func once(values []string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("it is there %d times: write it once", len(values))
	}
	return values[0], nil
}

func text(to *string, values []string) (err error) {
	*to, err = once(values)
	return err
}

func number(to *int, least int, values []string) error {
	v, err := once(values)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || int(n) < least || strconv.FormatUint(n, 10) != v { // 07 may be meant as octal
		return fmt.Errorf("%q: write a whole number, %d or more", v, least)
	}
	*to = int(n)
	return nil
}

func absolute(a *arguments, values []string) error {
	if err := text(&a.config, values); err != nil {
		return err
	}
	if !filepath.IsAbs(a.config) {
		return fmt.Errorf("%q is not an absolute path: write /etc/penstock/penstock.yaml", a.config)
	}
	return nil
}

func confirmTime(a *arguments, values []string) error {
	v, err := once(values)
	if err != nil {
		return err
	}
	if a.confirm, err = time.ParseDuration(v); err != nil {
		return fmt.Errorf("%q is not a time: write 30s or 2m", v)
	}
	if rollback.CheckConfirm(a.confirm) != nil { // above all 0, which would need no confirmation
		return fmt.Errorf("%q: write a time from 1s to 24h, such as 2m", v)
	}
	return nil
}

func undo(a *arguments, values []string) error {
	v, err := once(values)
	switch {
	case err != nil:
		return err
	case v != "true" && v != "false":
		return fmt.Errorf("%q is neither true nor false: write true or false", v)
	}
	a.undo = v == "true"
	return nil
}

// A methodError reports a request with a method that its path does not have.
type methodError struct {
	path, method string // the method that it has
}

func (e *methodError) Error() string {
	return fmt.Sprintf("another method: write %s %s", e.method, e.path)
}

// find returns the kind of a request.
func find(method, path string) (*request, error) {
	i := slices.IndexFunc(requests, func(q request) bool { return q.path == path })
	switch {
	case i < 0:
		return nil, fmt.Errorf("path %q: %w: write one of %s", path, ErrNotFound, paths())
	case method != requests[i].method && !(method == http.MethodHead && requests[i].method == http.MethodGet):
		return nil, &methodError{path, requests[i].method}
	}
	return &requests[i], nil
}

func paths() string {
	var list []string
	for _, q := range requests {
		list = append(list, q.path)
	}
	return strings.Join(list, ", ")
}

// read reads the parameters of a request.
func (q *request) read(r *http.Request) (*arguments, error) {
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return nil, fmt.Errorf("%w: a request has no body, and its parameters after the path: write %s", ErrInvalid, q.shape())
	}
	values, err := query(r.URL)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(values))
	for _, name := range names {
		if !slices.ContainsFunc(q.forms, func(form []string) bool { return slices.Contains(form, name) }) {
			return nil, fmt.Errorf("%w: %s has no parameter %q: write %s", ErrInvalid, q.path, name, q.shape())
		}
	}
	fits := func(form []string) bool { return slices.Equal(slices.Sorted(slices.Values(form)), names) }
	if !slices.ContainsFunc(q.forms, fits) {
		return nil, fmt.Errorf("%w: a parameter is missing, or is not for those beside it: write %s", ErrInvalid, q.shape())
	}
	a := new(arguments)
	for _, name := range names {
		if slices.Contains(values[name], "") {
			return nil, fmt.Errorf("%w: %s has no value: write %s=%s", ErrInvalid, name, name, placeholders[name])
		}
		if err := parameters[name](a, values[name]); errors.Is(err, ErrInvalid) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
	}
	return a, nil
}

// shape returns how a request is written.
func (q *request) shape() string {
	var list []string
	for _, form := range q.forms {
		text := q.path
		for i, name := range form {
			text += string("?&"[min(i, 1)]) + name + "=" + placeholders[name]
		}
		list = append(list, text)
	}
	return strings.Join(list, ", or ")
}

// query returns the parameters of a URL.
func query(u *url.URL) (url.Values, error) {
	if u.RawQuery == "" && !u.ForceQuery {
		return nil, nil
	}
	if slices.Contains(strings.Split(u.RawQuery, "&"), "") {
		return nil, fmt.Errorf("%w: there is no parameter after '?' or '&': leave it out", ErrInvalid)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: query: %w", ErrInvalid, err)
	}
	return values, nil
}
