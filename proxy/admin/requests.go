package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock/penstock/proxy/internal/nearest"
	"github.com/penstock/penstock/proxy/rollback"
)

// A request describes one kind of request to the API.
type request struct {
	method, path string
	role         role // that its client needs
	// forms are the sets of parameters that the request takes: all of one set, and no others except optional ones.
	forms  [][]string
	answer func(s *Server, ctx context.Context, a *arguments) (any, error)
	// optional are the parameters that the request takes with each form.
	optional []string
}

// requests are all kinds of requests. A request that matches none exactly is an error and changes nothing: a misspelled
// or empty parameter may have been an important one.
var requests = []request{
	{http.MethodGet, "/v1/status", reads, [][]string{{}}, (*Server).status, nil},
	{http.MethodGet, "/v1/why", reads, [][]string{{"for"}, {"for", "session"}, {"for", "source"}, {"for", "endpoint"}, {"for", "upstream"}, {"for", "listener"}}, (*Server).why, nil},
	{http.MethodGet, "/v1/generations", reads, [][]string{{}}, reloading(func(ctx context.Context, r Reloader, a *arguments) (any, error) { return r.Generations(), nil }), nil},
	{http.MethodGet, "/v1/openapi.json", reads, [][]string{{}}, (*Server).openapi, nil},
	{http.MethodGet, "/livez", anybody, [][]string{{}}, (*Server).livez, nil},
	{http.MethodGet, "/readyz", anybody, [][]string{{}}, (*Server).readyz, nil},
	{http.MethodGet, "/metrics", reads, [][]string{{}}, (*Server).metrics, nil},
	{http.MethodGet, "/v1/profile", reads, [][]string{{"seconds"}}, (*Server).profile, nil},
	{http.MethodPost, "/v1/plan", reads, [][]string{{}, {"config"}}, reloading(func(ctx context.Context, r Reloader, a *arguments) (any, error) {
		return r.Plan(ctx, a.text("config"), a.trusted)
	}), nil}, // changes nothing, but opens files
	{http.MethodPost, "/v1/reload", changes, [][]string{{}, {"confirm"}, {"confirm", "rollback_if"}}, reloading(func(ctx context.Context, r Reloader, a *arguments) (any, error) {
		return r.Reload(ctx, rollback.Options{Confirm: argument[time.Duration](a, "confirm"), RollbackIf: a.text("rollback_if"), By: a.by})
	}), nil},
	{http.MethodPost, "/v1/confirm", changes, [][]string{{}, {"generation"}}, (*Server).confirm, nil},
	{http.MethodPost, "/v1/rollback", changes, [][]string{{}, {"to"}}, reloading(func(ctx context.Context, r Reloader, a *arguments) (any, error) {
		return r.Rollback(ctx, argument[int](a, "to"), a.by)
	}), nil},
	{http.MethodPost, "/v1/process/drain", changes, [][]string{{}}, (*Server).drain, nil},
	{http.MethodPost, "/v1/listener/drain", changes, [][]string{{"listener"}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.DrainListener(a.text("listener"), a.by) }), nil},
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
	{http.MethodPost, "/v1/sessions/keep", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.StopEnding(a.by), nil }), nil},
	{http.MethodGet, "/v1/sources", reads, [][]string{{}}, (*Server).sources, []string{"by", "top", "prefix", "prefix6"}},
	{http.MethodGet, "/v1/mirrors", reads, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.Mirrors(a.text("listener")) }), []string{"listener"}},
	{http.MethodPost, "/v1/mirrors/reset", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.ResetMirrors(a.text("listener"), a.by) }), []string{"listener"}},
	{http.MethodPost, "/v1/lane/on", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.SwitchLane(true, a.by) }), nil},
	{http.MethodPost, "/v1/lane/off", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.SwitchLane(false, a.by) }), nil},
	{http.MethodPost, "/v1/lane/return", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.ReturnLane(a.by) }), nil},
	{http.MethodPost, "/v1/lane/flush", changes, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return b.FlushLane(a.by) }), nil},
	{http.MethodGet, "/v1/denied", reads, [][]string{{}}, balanced(func(b Balancer, a *arguments) (any, error) { return Denied{b.Denied()}, nil }), nil},
	{http.MethodPost, "/v1/deny/add", changes, [][]string{{"source", "for"}}, (*Server).denyAdd, []string{"listener", "end"}},
	{http.MethodPost, "/v1/deny/remove", changes, [][]string{{"source"}}, balanced(func(b Balancer, a *arguments) (any, error) {
		return b.Undeny(a.text("source"), a.text("listener"), a.by)
	}), []string{"listener"}},
}

func balanced(answer func(b Balancer, a *arguments) (any, error)) func(*Server, context.Context, *arguments) (any, error) {
	return func(s *Server, _ context.Context, a *arguments) (any, error) { return answer(s.cfg.Balancer, a) }
}

func reloading(answer func(ctx context.Context, r Reloader, a *arguments) (any, error)) func(*Server, context.Context, *arguments) (any, error) {
	return func(s *Server, ctx context.Context, a *arguments) (any, error) { return answer(ctx, s.cfg.Reloader, a) }
}

// pageFiles is the path of the page's files.
const pageFiles = "/page/"

// arguments are the values of a request's parameters by name, and who asks.
type arguments struct {
	values map[string]any

	by      string // who asks, for logs
	trusted bool   // the client may read the files that the process may read
}

// argument returns the value of a parameter, zero if it is absent.
func argument[T any](a *arguments, name string) T {
	v, _ := a.values[name].(T)
	return v
}

func (a *arguments) text(name string) string { return argument[string](a, name) }

// into fills in the fields of a query, see inQuery.
func (a *arguments) into(query any) {
	inQuery(query, func(name string, field reflect.Value) {
		if v, ok := a.values[name]; ok {
			field.Set(reflect.ValueOf(v))
		}
	})
}

// inQuery calls use for each field of a query that is a parameter of requests: its tag param has the name.
func inQuery(query any, use func(name string, field reflect.Value)) {
	v := reflect.ValueOf(query).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name := f.Tag.Get("param"); name != "" {
			use(name, v.FieldByIndex(f.Index))
		}
	}
}

// A parameter of requests has a placeholder for its value in the shape of a request, and a schema that says how to parse
// its values. No value is empty.
type parameter struct {
	placeholder string
	schema      *jsonschema.Schema
	parse       func(value string) (any, error) // nil: by the schema alone
	capped      bool                            // a number is compared with the schema's maximum
}

// parameters are all parameters by name.
var parameters = map[string]parameter{
	"listener":    {placeholder: "NAME", schema: nonEmpty("The name of a listener.")},
	"upstream":    {placeholder: "NAME", schema: nonEmpty("The name of an upstream.")},
	"endpoint":    {placeholder: "NAME", schema: nonEmpty("An endpoint, by its name or its address.")},
	"rollback_if": {placeholder: "COUNTER>N", schema: pattern("A counter and a bound: the reload is rolled back at once if the counter rises by more than N, or with >= by N or more. The counters are listed in the status, in counters.", `^(`+strings.Join(CounterNames, "|")+`)>=?[0-9]+$`)},
	"generation":  {placeholder: "N", schema: whole("The generation to confirm. Another pending generation is not confirmed.", 1, 0)},
	"to":          {placeholder: "N", schema: whole("The generation to return to. Left out: the previous generation.", 1, 0)},
	"weight":      {placeholder: "N", schema: whole("The weight; 0: no more clients.", 0, 256)},
	"address":     {placeholder: "ADDRESS", schema: nonEmpty("host:port or unix:/path.")},
	"name":        {placeholder: "NAME", schema: nonEmpty("The name of an endpoint. Left out: its address.")},
	"zone":        {placeholder: "NAME", schema: nonEmpty("The zone of an endpoint.")},
	"backup":      {placeholder: "true", schema: truth("Clients get this endpoint only if no other endpoint is usable.")},
	"connections": {placeholder: "N", schema: whole("Limit of the endpoint's sessions; 0: none.", 0, 0)},
	"route":       {placeholder: "N", schema: whole("The route, counted from 0.", 0, 0)},
	"seconds":     {placeholder: "N", schema: whole("The duration of the profile.", 1, MaxProfile), capped: true},
	"for":         {placeholder: "TIME", schema: pattern("The time to measure, up to 1m. 0s: the whole life of each session.", timePattern)},
	"session":     {placeholder: "CLIENT", schema: nonEmpty("A session, by its client.")},
	"source":      {placeholder: "ADDRESS", schema: nonEmpty("An address or a prefix of clients.")},
	"config":      {placeholder: "/PATH", schema: pattern("The absolute path of another file, for root and the user of the process.", `^/`), parse: parseAbsolute},
	"confirm":     {placeholder: "TIME", schema: pattern("The time, from 1s to 24h, within which the reload must be confirmed.", timePattern), parse: parseConfirm},
	"id":          {placeholder: "ID", schema: nonEmpty("A session, by its ID or its log_id.")},
	"older":       {placeholder: "TIME", schema: pattern("Sessions that are at least this old.", timePattern)},
	"idle":        {placeholder: "TIME", schema: pattern("Sessions that have moved no byte for at least this long.", timePattern)},
	"bytes":       {placeholder: "SIZE", schema: pattern("Sessions that have moved at least this many bytes, such as 1MiB.", `^[0-9]+([KMGT]iB)?$`), parse: parseSize},
	"state":       {placeholder: "STATE", schema: among("Sessions in a state.", sessionStates)},
	"verdict":     {placeholder: "VERDICT", schema: among("Sessions with a verdict. any: all sessions, with their verdicts.", sessionVerdicts)},
	"engine":      {placeholder: "ENGINE", schema: among("Sessions whose bytes move this way now. lane: sessions that have left user space.", []string{EngineLane})},
	"sort":        {placeholder: "ORDER", schema: among("The column to sort by: numbers from large to small, names by the alphabet. Left out: no order.", SessionOrders)},
	"top":         {placeholder: "N", schema: whole(fmt.Sprintf("The length of the list. Left out: %d sources; all sessions, or %d if they are sorted.", DefaultTop, MaxTop), 1, MaxTop), capped: true},
	"all":         {placeholder: "true", schema: truth("All sessions. A request needs a filter, or all=true.")},
	"now":         {placeholder: "true", schema: truth("Sessions are reset at once.")},
	"over":        {placeholder: "TIME", schema: pattern("The ends are spread over a time, up to 24h.", timePattern)},
	"grace":       {placeholder: "TIME", schema: pattern("How long to wait for each session to become quiet, up to 24h. Left out: 30s.", timePattern)},
	"quiet":       {placeholder: "TIME", schema: pattern("A session is quiet when it has moved no byte for this time, at least 1s. Left out: 10s.", timePattern)},
	"then_reset":  {placeholder: "true", schema: truth("Sessions that are not quiet after grace are reset. Left out: they continue.")},
	"dry_run":     {placeholder: "true", schema: truth("The sessions are only counted: touched is their number, quiet or not, and done is true.")},
	"end":         {placeholder: "true", schema: truth("The sessions of the source are ended at once.")},
	"by":          {placeholder: "ORDER", schema: among("The order of sources.", SourceOrders)},
	"prefix":      {placeholder: "N", schema: whole("IPv4 addresses that share this many leading bits are one source. Left out: 32.", 1, 32)},
	"prefix6":     {placeholder: "N", schema: whole("IPv6 addresses that share this many leading bits are one source. Left out: 64.", 1, 128)},
	"percent":     {placeholder: "NAME:N", schema: &jsonschema.Schema{Type: "array", Items: pattern("", `^.+:[0-9]+(\.[0-9]{1,2})?%?$`), Description: "NAME:PERCENT, once for each upstream of the split; they add up to 100."}},
}

// read parses the values of a parameter, in their order.
func (p *parameter) read(values []string) (any, error) {
	if p.schema.Type == "array" {
		return ParsePercent(values)
	}
	if len(values) > 1 {
		return nil, fmt.Errorf("it is written %d times: write it once", len(values))
	}
	v := values[0]
	switch {
	case p.parse != nil:
		return p.parse(v)
	case p.schema.Type == "integer":
		return p.number(v)
	case p.schema.Type == "boolean" && v != "true" && v != "false":
		return nil, fmt.Errorf("%q is neither true nor false: write true or false", v)
	case p.schema.Type == "boolean":
		return v == "true", nil
	case p.schema.Pattern == timePattern:
		return parseTime(v)
	case len(p.schema.Enum) > 0 && !slices.Contains(p.schema.Enum, any(v)):
		words := fmt.Sprintf(strings.Repeat(", %s", len(p.schema.Enum)), p.schema.Enum...)
		return nil, fmt.Errorf("%q is unknown: use one of %s", v, words[len(", "):])
	}
	return v, nil
}

func (p *parameter) number(v string) (any, error) {
	n, err := strconv.ParseUint(v, 10, 31)
	if err != nil || float64(n) < *p.schema.Minimum || strconv.FormatUint(n, 10) != v { // 07 may be meant as octal
		return nil, fmt.Errorf("%q: write a whole number, %v or more", v, *p.schema.Minimum)
	}
	if p.capped && float64(n) > *p.schema.Maximum {
		return nil, fmt.Errorf("%d: write at most %v", n, *p.schema.Maximum)
	}
	return int(n), nil
}

func parseTime(v string) (any, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || !orderly.MatchString(v) {
		return nil, fmt.Errorf("%q is not a time: write 500ms, 30s, 5m or 1h30m", v)
	}
	return d, nil
}

func parseSize(v string) (any, error) { return ParseSize(v) }

func parseAbsolute(v string) (any, error) {
	if !filepath.IsAbs(v) {
		return nil, fmt.Errorf("%q is not an absolute path: write /etc/penstock/penstock.yaml", v)
	}
	return v, nil
}

func parseConfirm(v string) (any, error) {
	d, err := time.ParseDuration(v)
	if err != nil || !orderly.MatchString(v) {
		return nil, fmt.Errorf("%q is not a time: write 30s or 2m", v)
	}
	if rollback.CheckConfirm(d) != nil { // 0 would need no confirmation
		return nil, fmt.Errorf("%q: write a time from 1s to 24h, such as 2m", v)
	}
	return d, nil
}

// A methodError reports a request with the wrong method for its path.
type methodError struct {
	path, method string // path, and the method that it takes
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

// mostWrong is how many letters a path may differ from the meant path.
const mostWrong = 2

// nearestTo suggests the path nearest to a wrong one, or one of several equally near paths. It returns "" if no path is
// near. The distance of a path is the distance of the whole path, or of its last part plus one letter, whichever is
// less. A path with only its beginning written is one letter away.
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
	a := &arguments{values: make(map[string]any)}
	for _, name := range names {
		p := parameters[name]
		if slices.Contains(values[name], "") {
			return nil, fmt.Errorf("%w: %s has no value: write %s=%s", ErrInvalid, name, name, p.placeholder)
		}
		if a.values[name], err = p.read(values[name]); errors.Is(err, ErrInvalid) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
		}
	}
	return a, nil
}

func (q *request) takes(name string) bool {
	return slices.Contains(q.optional, name) || slices.ContainsFunc(q.forms, func(form []string) bool { return slices.Contains(form, name) })
}

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
