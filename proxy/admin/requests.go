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

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock/penstock/proxy/internal/nearest"
	"github.com/penstock/penstock/proxy/rollback"
)

// A request is a kind of request to the API.
type request struct {
	method, path string
	role         role // that it needs
	// forms are the sets of parameters that it takes: all of one set, and no others but
	// optional.
	forms  [][]string
	answer func(s *Server, ctx context.Context, a *arguments) (any, error)
	// optional are parameters that it takes beside each form.
	optional []string
}

// requests are all kinds of requests. A request that does not match one exactly is an error
// and changes nothing. A misspelled or empty parameter may have been an important one.
var requests = []request{
	{http.MethodGet, "/v1/status", reads, [][]string{{}}, (*Server).status, nil},
	{http.MethodGet, "/v1/why", reads, [][]string{{"for"}, {"for", "session"}, {"for", "source"}, {"for", "endpoint"}, {"for", "upstream"}, {"for", "listener"}}, (*Server).why, nil},
	{http.MethodGet, "/v1/generations", reads, [][]string{{}}, (*Server).generations, nil},
	{http.MethodGet, "/v1/openapi.json", reads, [][]string{{}}, (*Server).openapi, nil},
	{http.MethodGet, "/livez", anybody, [][]string{{}}, (*Server).livez, nil},
	{http.MethodGet, "/readyz", anybody, [][]string{{}}, (*Server).readyz, nil},
	{http.MethodGet, "/metrics", reads, [][]string{{}}, (*Server).metrics, nil},
	{http.MethodGet, "/v1/profile", reads, [][]string{{"seconds"}}, (*Server).profile, nil},
	{http.MethodPost, "/v1/plan", reads, [][]string{{}, {"config"}}, (*Server).plan, nil}, // changes nothing, but opens files
	{http.MethodPost, "/v1/reload", changes, [][]string{{}, {"confirm"}, {"confirm", "rollback_if"}}, (*Server).reload, nil},
	{http.MethodPost, "/v1/confirm", changes, [][]string{{}, {"generation"}}, (*Server).confirm, nil},
	{http.MethodPost, "/v1/rollback", changes, [][]string{{}, {"to"}}, (*Server).rollback, nil},
	{http.MethodPost, "/v1/process/drain", changes, [][]string{{}}, (*Server).drain, nil},
	{http.MethodPost, "/v1/listener/drain", changes, [][]string{{"listener"}}, (*Server).drainListener, nil},
	{http.MethodPost, "/v1/split/set", changes, [][]string{{"listener", "route", "percent"}}, (*Server).setSplit, nil},
	{http.MethodGet, "/v1/process", reads, [][]string{{}}, (*Server).process, nil},
	{http.MethodPost, "/v1/leave", succeeds, [][]string{{}}, (*Server).leave, nil}, // from a successor

	{http.MethodPost, "/v1/endpoint/add", changes, [][]string{{"upstream", "address"}}, (*Server).endpointAdd, []string{"name", "weight", "zone", "backup", "connections"}},
	{http.MethodPost, "/v1/endpoint/remove", changes, [][]string{{"upstream", "endpoint"}}, endpointVerb(EndpointRemove), nil},
	{http.MethodPost, "/v1/endpoint/drain", changes, [][]string{{"upstream", "endpoint"}}, endpointVerb(EndpointDrain), nil},
	{http.MethodPost, "/v1/endpoint/ready", changes, [][]string{{"upstream", "endpoint"}}, endpointVerb(EndpointReady), nil},
	{http.MethodPost, "/v1/endpoint/maint", changes, [][]string{{"upstream", "endpoint"}}, endpointVerb(EndpointMaint), nil},
	{http.MethodPost, "/v1/endpoint/weight", changes, [][]string{{"upstream", "endpoint", "weight"}}, endpointVerb(EndpointWeight), nil},
	{http.MethodPost, "/v1/listener/ready", changes, [][]string{{"listener"}}, (*Server).readyListener, nil},

	{http.MethodGet, "/v1/events", reads, [][]string{{}}, (*Server).events, nil},
	{http.MethodGet, "/", reads, [][]string{{}}, (*Server).page, nil},
	{http.MethodGet, pageFiles, reads, [][]string{{}}, (*Server).page, nil}, // and each path below it

	{http.MethodGet, "/v1/sessions", reads, [][]string{{}}, (*Server).sessions, slices.Concat(sessionFilters, []string{"sort", "top"})},
	{http.MethodPost, "/v1/sessions/end", changes, [][]string{{}}, (*Server).endSessions, slices.Concat(sessionFilters, []string{"all", "now", "over", "grace", "quiet", "then_reset", "dry_run"})},
	{http.MethodPost, "/v1/sessions/keep", changes, [][]string{{}}, (*Server).keepSessions, nil},
	{http.MethodGet, "/v1/sources", reads, [][]string{{}}, (*Server).sources, []string{"by", "top", "prefix", "prefix6"}},
	{http.MethodGet, "/v1/mirrors", reads, [][]string{{}}, (*Server).mirrors, []string{"listener"}},
	{http.MethodPost, "/v1/mirrors/reset", changes, [][]string{{}}, (*Server).resetMirrors, []string{"listener"}},
	{http.MethodPost, "/v1/lane/on", changes, [][]string{{}}, laneSwitch(true), nil},
	{http.MethodPost, "/v1/lane/off", changes, [][]string{{}}, laneSwitch(false), nil},
	{http.MethodPost, "/v1/lane/return", changes, [][]string{{}}, (*Server).laneReturn, nil},
	{http.MethodPost, "/v1/lane/flush", changes, [][]string{{}}, (*Server).laneFlush, nil},
	{http.MethodGet, "/v1/denied", reads, [][]string{{}}, (*Server).denied, nil},
	{http.MethodPost, "/v1/deny/add", changes, [][]string{{"source", "for"}}, (*Server).denyAdd, []string{"listener", "end"}},
	{http.MethodPost, "/v1/deny/remove", changes, [][]string{{"source"}}, (*Server).denyRemove, []string{"listener"}},
}

// pageFiles is the path of the files of the page.
const pageFiles = "/page/"

// arguments are the values of a request's parameters; absent ones are zero.
type arguments struct {
	listener, upstream, endpoint string
	session, source              string
	window                       time.Duration
	config, rollbackIf           string
	confirm                      time.Duration
	generation, weight, route    int
	to                           int
	seconds                      int
	address, name, zone          string
	backup                       bool
	connections                  int
	weighed                      bool // weight is there
	percent                      map[string]float64

	by      string // who asks, for logs
	trusted bool   // it may read the files that the process may read

	filters          SessionQuery // but for the names and the source, which others have as well
	end              EndQuery
	sort             string
	top              int
	endToo           bool
	orderOfSources   string
	prefix4, prefix6 int
}

// A parameter of requests: what stands for its value in the shape of a request, its schema, and how its values are parsed, in
// their order. No value is empty.
type parameter struct {
	placeholder string
	schema      *jsonschema.Schema
	parse       func(a *arguments, values []string) error
}

// parameters are all of them, by name.
var parameters = map[string]parameter{
	"listener":    {"NAME", nonEmpty("The name of a listener."), func(a *arguments, v []string) error { return text(&a.listener, v) }},
	"upstream":    {"NAME", nonEmpty("The name of an upstream."), func(a *arguments, v []string) error { return text(&a.upstream, v) }},
	"endpoint":    {"NAME", nonEmpty("An endpoint, by its name or its address."), func(a *arguments, v []string) error { return text(&a.endpoint, v) }},
	"rollback_if": {"COUNTER>N", pattern("A counter and a bound: the reload is rolled back at once if the counter rises by more than N, or with >= by N or more. The counters are listed in the status, in counters.", `^(`+strings.Join(CounterNames, "|")+`)>=?[0-9]+$`), func(a *arguments, v []string) error { return text(&a.rollbackIf, v) }},
	"generation":  {"N", whole("The generation to confirm. Another pending generation is not confirmed.", 1, 0), func(a *arguments, v []string) error { return number(&a.generation, 1, v) }},
	"to":          {"N", whole("The generation to return to. Left out: the previous generation.", 1, 0), func(a *arguments, v []string) error { return number(&a.to, 1, v) }},
	"weight":      {"N", whole("The weight; 0: no more clients.", 0, 256), func(a *arguments, v []string) error { a.weighed = true; return number(&a.weight, 0, v) }},
	"address":     {"ADDRESS", nonEmpty("host:port or unix:/path."), func(a *arguments, v []string) error { return text(&a.address, v) }},
	"name":        {"NAME", nonEmpty("The name of an endpoint. Left out: its address."), func(a *arguments, v []string) error { return text(&a.name, v) }},
	"zone":        {"NAME", nonEmpty("The zone of an endpoint."), func(a *arguments, v []string) error { return text(&a.zone, v) }},
	"backup":      {"true", truth("Clients get this endpoint only if no other endpoint is usable."), func(a *arguments, v []string) error { return flag(&a.backup, v) }},
	"connections": {"N", whole("Limit of the endpoint's sessions; 0: none.", 0, 0), func(a *arguments, v []string) error { return number(&a.connections, 0, v) }},
	"route":       {"N", whole("The route, counted from 0.", 0, 0), func(a *arguments, v []string) error { return number(&a.route, 0, v) }},
	"seconds":     {"N", whole("The duration of the profile.", 1, MaxProfile), profileTime},
	"for":         {"TIME", pattern("The time to measure, up to 1m. 0s: the whole life of each session.", timePattern), func(a *arguments, v []string) error { return duration(&a.window, v) }},
	"session":     {"CLIENT", nonEmpty("A session, by its client."), func(a *arguments, v []string) error { return text(&a.session, v) }},
	"source":      {"ADDRESS", nonEmpty("An address or a prefix of clients."), func(a *arguments, v []string) error { return text(&a.source, v) }},
	"config":      {"/PATH", pattern("The absolute path of another file, for root and the user of the process.", `^/`), absolute},
	"confirm":     {"TIME", pattern("The time, from 1s to 24h, within which the reload must be confirmed.", timePattern), confirmTime},
	"id":          {"ID", nonEmpty("A session, by its ID."), func(a *arguments, v []string) error { return text(&a.filters.ID, v) }},
	"older":       {"TIME", pattern("Sessions that are at least this old.", timePattern), func(a *arguments, v []string) error { return duration(&a.filters.Older, v) }},
	"idle":        {"TIME", pattern("Sessions that have moved no byte for at least this long.", timePattern), func(a *arguments, v []string) error { return duration(&a.filters.Idle, v) }},
	"bytes":       {"SIZE", pattern("Sessions that have moved at least this many bytes, such as 1MiB.", `^[0-9]+([KMGT]iB)?$`), func(a *arguments, v []string) error { return size(&a.filters.Bytes, v) }},
	"state":       {"STATE", among("Sessions in a state.", sessionStates), func(a *arguments, v []string) error { return choice(&a.filters.State, sessionStates, v) }},
	"verdict":     {"VERDICT", among("Sessions with a verdict. any: all sessions, with their verdicts.", sessionVerdicts), func(a *arguments, v []string) error { return choice(&a.filters.Verdict, sessionVerdicts, v) }},
	"engine":      {"ENGINE", among("Sessions whose bytes move this way now. lane: sessions that have left user space.", []string{EngineLane}), func(a *arguments, v []string) error { return choice(&a.filters.Engine, []string{EngineLane}, v) }},
	"sort":        {"ORDER", among("The column to sort by: numbers from large to small, names by the alphabet. Left out: no order.", SessionOrders), func(a *arguments, v []string) error { return choice(&a.sort, SessionOrders, v) }},
	"top":         {"N", whole(fmt.Sprintf("The length of the list. Left out: %d sources; all sessions, or %d if they are sorted.", DefaultTop, MaxTop), 1, MaxTop), topOf},
	"all":         {"true", truth("All sessions. A request needs a filter, or all=true."), func(a *arguments, v []string) error { return flag(&a.end.All, v) }},
	"now":         {"true", truth("Sessions are reset at once."), func(a *arguments, v []string) error { return flag(&a.end.Now, v) }},
	"over":        {"TIME", pattern("The ends are spread over a time, up to 24h.", timePattern), func(a *arguments, v []string) error { return duration(&a.end.Over, v) }},
	"grace":       {"TIME", pattern("How long to wait for each session to become quiet, up to 24h. Left out: 30s.", timePattern), func(a *arguments, v []string) error { return duration(&a.end.Grace, v) }},
	"quiet":       {"TIME", pattern("A session is quiet when it has moved no byte for this time, at least 1s. Left out: 10s.", timePattern), func(a *arguments, v []string) error { return duration(&a.end.Quiet, v) }},
	"then_reset":  {"true", truth("Sessions that are not quiet after grace are reset. Left out: they continue."), func(a *arguments, v []string) error { return flag(&a.end.ThenReset, v) }},
	"dry_run":     {"true", truth("The sessions are only counted: touched is their number, quiet or not, and done is true."), func(a *arguments, v []string) error { return flag(&a.end.DryRun, v) }},
	"end":         {"true", truth("The sessions of the source are ended at once."), func(a *arguments, v []string) error { return flag(&a.endToo, v) }},
	"by":          {"ORDER", among("The order of sources.", SourceOrders), func(a *arguments, v []string) error { return choice(&a.orderOfSources, SourceOrders, v) }},
	"prefix":      {"N", whole("IPv4 addresses that share this many leading bits are one source. Left out: 32.", 1, 32), func(a *arguments, v []string) error { return number(&a.prefix4, 1, v) }},
	"prefix6":     {"N", whole("IPv6 addresses that share this many leading bits are one source. Left out: 64.", 1, 128), func(a *arguments, v []string) error { return number(&a.prefix6, 1, v) }},
	"percent":     {"NAME:N", &jsonschema.Schema{Type: "array", Items: pattern("", `^.+:[0-9]+(\.[0-9]{1,2})?%?$`), Description: "NAME:PERCENT, once for each upstream of the split; they add up to 100."}, func(a *arguments, v []string) (err error) { a.percent, err = ParsePercent(v); return err }},
}

// once returns the value of a parameter that may occur once.
func once(values []string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("it is written %d times: write it once", len(values))
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

// topOf parses the length of a list.
func topOf(a *arguments, values []string) error {
	if err := number(&a.top, 1, values); err != nil {
		return err
	}
	if a.top > MaxTop {
		return fmt.Errorf("%d: write at most %d", a.top, MaxTop)
	}
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
	if a.confirm, err = time.ParseDuration(v); err != nil || !orderly.MatchString(v) {
		return fmt.Errorf("%q is not a time: write 30s or 2m", v)
	}
	if rollback.CheckConfirm(a.confirm) != nil { // above all 0, which would need no confirmation
		return fmt.Errorf("%q: write a time from 1s to 24h, such as 2m", v)
	}
	return nil
}

// A methodError reports a request with a method that its path does not have.
type methodError struct {
	path, method string // the method that it has
}

func (e *methodError) Error() string {
	return fmt.Sprintf("this path has another method: write %s %s", e.method, e.path)
}

// find returns the kind of a request.
func find(method, path string) (*request, error) {
	if strings.HasPrefix(path, pageFiles) {
		path = pageFiles
	}
	i := slices.IndexFunc(requests, func(q request) bool { return q.path == path })
	switch {
	case i < 0:
		return nil, fmt.Errorf("path %q: %w: %sGET /v1/openapi.json describes all paths", path, ErrNotFound, nearestTo(path))
	case method != requests[i].method && !(method == http.MethodHead && requests[i].method == http.MethodGet):
		return nil, &methodError{path, requests[i].method}
	}
	return &requests[i], nil
}

// mostWrong is by how many letters a path may differ from the path that was meant.
const mostWrong = 2

// nearestTo returns the advice to use the path nearest to a wrong one, or one of several equally
// near paths; "" if there is none. A path is as near as the whole of it, or one letter farther than
// its last part, whichever is less; a path of which only the beginning was written is one letter away.
func nearestTo(path string) string {
	asked := strings.TrimPrefix(path, "/v1/")
	if len(asked) > nearest.Longest {
		return ""
	}
	var found []string
	least := min(len(asked), mostWrong+1)
	for _, q := range requests {
		meant := strings.TrimPrefix(q.path, "/v1/")
		d := min(nearest.Distance(asked, meant), nearest.Distance(asked[strings.LastIndex(asked, "/")+1:], meant[strings.LastIndex(meant, "/")+1:])+1)
		if strings.HasPrefix(meant, asked+"/") {
			d = min(d, 1)
		}
		if d < least {
			found, least = nil, d
		}
		if d == least {
			found = append(found, q.method+" "+q.path)
		}
	}
	const most = 3
	if len(found) == 0 || len(found) > most {
		return ""
	}
	return "write " + strings.Join(found, " or ") + "; "
}

// read reads the parameters of a request.
func (q *request) read(r *http.Request) (*arguments, error) {
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return nil, fmt.Errorf("%w: a request has no body, and its parameters follow the path: write %s", ErrInvalid, q.shape())
	}
	values, err := query(r.URL)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(values))
	for _, name := range names {
		if !q.takes(name) {
			return nil, fmt.Errorf("%w: %s has no parameter %q: write %s", ErrInvalid, q.path, name, q.shape())
		}
	}
	asked := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(q.optional, name) })
	fits := func(form []string) bool { return slices.Equal(slices.Sorted(slices.Values(form)), asked) }
	if !slices.ContainsFunc(q.forms, fits) {
		return nil, fmt.Errorf("%w: a parameter is missing, or cannot be used with the others: write %s", ErrInvalid, q.shape())
	}
	a := new(arguments)
	for _, name := range names {
		if slices.Contains(values[name], "") {
			return nil, fmt.Errorf("%w: %s has no value: write %s=%s", ErrInvalid, name, name, parameters[name].placeholder)
		}
		if err := parameters[name].parse(a, values[name]); errors.Is(err, ErrInvalid) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
	}
	return a, nil
}

// takes reports whether a request has a parameter of that name.
func (q *request) takes(name string) bool {
	return slices.Contains(q.optional, name) || slices.ContainsFunc(q.forms, func(form []string) bool { return slices.Contains(form, name) })
}

// shape returns how a request is written.
func (q *request) shape() string {
	var list []string
	for _, form := range q.forms {
		text := q.path
		for i, name := range form {
			text += string("?&"[min(i, 1)]) + name + "=" + parameters[name].placeholder
		}
		list = append(list, text)
	}
	shape := strings.Join(list, ", or ")
	for i, name := range q.optional {
		shape += []string{", with any of ", ", "}[min(i, 1)] + name + "=" + parameters[name].placeholder
	}
	return shape
}

func query(u *url.URL) (url.Values, error) {
	if u.RawQuery == "" && !u.ForceQuery {
		return nil, nil
	}
	if slices.Contains(strings.Split(u.RawQuery, "&"), "") {
		return nil, fmt.Errorf("%w: no parameter follows '?' or '&': leave the '?' or '&' out", ErrInvalid)
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("%w: query: %w", ErrInvalid, err)
	}
	return values, nil
}
