package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/rollback"
)

// A description is what the OpenAPI document has of a request, beside its row in requests.
type description struct {
	summary string
	answer  any                           // a value of its type; nil if it is not described
	name    string                        // of its schema; "": that of the type
	media   string                        // of an answer that is not JSON, or of the document; answer is that of its parts
	codes   []int                         // of errors, beside those of all requests
	note    string                        // more than the summary
	params  map[string]*jsonschema.Schema // in place of those of parameterSchemas
}

// descriptions are those of all requests, by path.
var descriptions = map[string]*description{
	"/v1/status":          {summary: "The status of the process, its listeners, upstreams and endpoints, with the present problems first.", answer: Status{}},
	"/v1/sessions":        {summary: "The clients that are served, those that the parameters select.", answer: Sessions{}, codes: []int{http.StatusNotFound}},
	"/v1/why":             {summary: "What limits sessions, between two looks. A name that there is not is an error.", answer: Why{}, codes: []int{http.StatusNotFound}},
	"/v1/generations":     {summary: "The generations of the configuration.", answer: rollback.Status{}, name: "Generations"},
	"/v1/openapi.json":    {summary: "This document.", media: "application/json"},
	"/metrics":            {summary: "The metrics, in OpenMetrics or in Prometheus's text.", media: "text/plain", codes: []int{http.StatusNotFound}},
	"/livez":              {summary: "Whether the process lives. It needs no role.", media: "text/plain", codes: []int{http.StatusServiceUnavailable}},
	"/readyz":             {summary: "Whether the process is ready for clients. It is not when it is about to drain, or drains. It needs no role.", media: "text/plain", codes: []int{http.StatusServiceUnavailable}},
	"/v1/profile":         {summary: "A CPU profile of the process, in the format of pprof.", media: "application/octet-stream"},
	"/v1/process":         {summary: "What limits the process: features, limits, quotas, fallbacks since its start.", answer: doctor.Report{}, name: "Process", codes: []int{http.StatusNotFound}},
	"/v1/plan":            {summary: "The changes that a reload would make. It changes nothing.", answer: Plan{}, codes: []int{http.StatusUnprocessableEntity}},
	"/v1/reload":          {summary: "Reads the configuration again and brings it into force.", answer: Reloaded{}, codes: []int{http.StatusConflict, http.StatusUnprocessableEntity}},
	"/v1/confirm":         {summary: "Confirms the pending reload.", answer: Outcome{}, codes: []int{http.StatusConflict}},
	"/v1/rollback":        {summary: "Returns to the generation before.", answer: RolledBack{}, codes: []int{http.StatusConflict}},
	"/v1/process/drain":   {summary: "The process drains and ends, as by SIGTERM.", answer: empty{}},
	"/v1/listener/drain":  {summary: "A listener accepts no more clients, until it is ready again or a reload changes its bind.", answer: empty{}, codes: []int{http.StatusNotFound}},
	"/v1/split/set":       {summary: "Sets the percentages of a split.", answer: empty{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/drain":  {summary: "An endpoint gets no more clients. Its sessions have drain_timeout, and it is checked.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/ready":  {summary: "An endpoint gets clients again, after drain, maint or remove.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/weight": {summary: "Sets the weight of an endpoint.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/listener/ready":  {summary: "A drained listener accepts clients again.", answer: empty{}, codes: []int{http.StatusNotFound}},

	"/v1/endpoint/add":    {summary: "Adds an endpoint, or takes back that it was removed.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/remove": {summary: "Removes an endpoint: one of the file or of discovery until its line there changes.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/endpoint/maint":  {summary: "An endpoint gets no more clients and is not checked. Its sessions go on.", answer: EndpointChanged{}, codes: []int{http.StatusNotFound}},
	"/v1/sessions/end":    {summary: "Ends sessions: gently, at once, or over a time.", answer: Ended{}, codes: []int{http.StatusNotFound, http.StatusConflict}, note: fmt.Sprintf("It is answered when the last of them has ended, or else after %v: done is false then, and the rest is ended until the time in until.", EndWait)},
	"/v1/sessions/keep":   {summary: "Ends of sessions that are under way stop.", answer: Stopped{}},
	"/v1/sources":         {summary: "The sources with the most connections, arrivals, refusals or bytes.", answer: Sources{}},
	"/v1/mirrors":         {summary: "The mirrors of listeners, with the reports of those whose answers are compared.", answer: MirrorReports{}, codes: []int{http.StatusNotFound}},
	"/v1/mirrors/reset":   {summary: "The reports on mirrors count from now on: the mirrors that ended, their bytes, and the comparisons.", answer: empty{}, codes: []int{http.StatusNotFound}},
	"/v1/lane/on":         {summary: "Sessions of listeners with lane leave user space again.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/lane/off":        {summary: "No further session leaves user space, until on or a restart. Those that have left stay there.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/lane/return":     {summary: "Sessions that have left user space come back, and go on there. Those that cannot, and those of a process before this one, are reset on both sides in sequence.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}, note: "It is answered when all have."},
	"/v1/lane/flush":      {summary: "Sessions that have left user space are reset, on both sides in sequence.", answer: LaneChanged{}, codes: []int{http.StatusNotFound, http.StatusConflict}},
	"/v1/denied":          {summary: "The sources that are denied by hand.", answer: Denied{}},
	"/v1/deny/add": {summary: "Denies a source for a time, at a listener or at all; end=true ends its sessions, too.", answer: NewDenial{}, codes: []int{http.StatusNotFound}, note: fmt.Sprintf("With end it is answered when they have ended, or else after %v.", EndWait), params: map[string]*jsonschema.Schema{
		"for": pattern(fmt.Sprintf("How long the source is denied: from %v to %.0fh, which is 366 days.", LeastDenial, MaxDenial.Hours()), timePattern),
	}},
	"/v1/deny/remove": {summary: "A source is not denied by hand any more.", answer: empty{}, codes: []int{http.StatusNotFound}},
	"/v1/leave":       {summary: "A draining process leaves its address to a successor.", answer: empty{}, codes: []int{http.StatusConflict}},

	"/v1/events": {summary: "The status as a stream of server-sent events: first all of it, then once a second the rows that have changed.", answer: eventData{}, name: "Event", media: "text/event-stream"},
	"/":          {summary: "The page, for a browser.", media: "text/html", codes: []int{http.StatusNotFound}},
	pageFiles:    {summary: "The files of the page, at the paths that it refers to.", media: "text/plain", codes: []int{http.StatusNotFound}},
}

// parameterSchemas are those of all parameters. A text is not empty.
var parameterSchemas = map[string]*jsonschema.Schema{
	"listener":    nonEmpty("The name of a listener."),
	"upstream":    nonEmpty("The name of an upstream."),
	"endpoint":    nonEmpty("An endpoint, by its name or its address."),
	"address":     nonEmpty("host:port or unix:/path."),
	"name":        nonEmpty("The name of an endpoint. Left out: its address."),
	"zone":        nonEmpty("The zone of an endpoint."),
	"session":     nonEmpty("A session, by its client."),
	"source":      nonEmpty("An address or a prefix of clients."),
	"rollback_if": pattern("A counter and a bound: the reload is rolled back at once if the counter rises by more, or with >= by so much. The counters are those of the status, in counters.", `^(`+strings.Join(CounterNames, "|")+`)>=?[0-9]+$`),
	"generation":  whole("The generation that is confirmed, and no other.", 1, 0),
	"to":          whole("The generation to return to. Left out: the one before.", 1, 0),
	"weight":      whole("The weight; 0: no more clients.", 0, 256),
	"backup":      truth("Clients get the endpoint only if no other is usable."),
	"connections": whole("Limit of the endpoint's sessions; 0: none.", 0, 0),
	"route":       whole("The route, counted from 0.", 0, 0),
	"seconds":     whole("How long the profile is taken.", 1, MaxProfile),
	"for":         pattern("The time between two looks, up to 1m, or 0s: since the beginning of each session.", timePattern),
	"config":      pattern("The absolute path of another file, for root and the user of the process.", `^/`),
	"confirm":     pattern("The time, from 1s to 24h, within which the reload has to be confirmed.", timePattern),
	"id":          nonEmpty("A session, by its ID."),
	"older":       pattern("Sessions at least so old.", timePattern),
	"idle":        pattern("Sessions without a byte for at least so long.", timePattern),
	"bytes":       pattern("Sessions with at least so many bytes, such as 1MiB.", `^[0-9]+([KMGT]iB)?$`),
	"state":       among("Sessions in a state.", sessionStates),
	"engine":      among("Sessions by how their bytes move now; lane: those that have left user space.", []string{EngineLane}),
	"verdict":     among("Sessions with a verdict. As any: all have theirs in the answer.", sessionVerdicts),
	"sort":        among("The order, the largest number or the first name first. Left out: as they are found.", SessionOrders),
	"top":         whole(fmt.Sprintf("The length of the list. Left out: %d sources; all sessions, or %d if they are sorted.", DefaultTop, MaxTop), 1, MaxTop),
	"all":         truth("All sessions. One filter, or this, has to be there."),
	"now":         truth("Sessions are reset at once."),
	"over":        pattern("The ends are spread over a time, up to 24h.", timePattern),
	"grace":       pattern("How long sessions that are ended gently have, to become quiet: up to 24h. Left out: 30s.", timePattern),
	"quiet":       pattern("For how long a session that is ended gently has to move no byte, 1s at least. Left out: 10s.", timePattern),
	"then_reset":  truth("After that they are reset; otherwise they go on."),
	"dry_run":     truth("The sessions are only counted: they are in touched, quiet or not, and done is true."),
	"end":         truth("The sessions of the source are ended at once."),
	"by":          among("The order of sources.", SourceOrders),
	"prefix":      whole("The bits of an IPv4 address that make a source. Left out: 32.", 1, 32),
	"prefix6":     whole("The bits of an IPv6 address that make a source. Left out: 64.", 1, 128),
	"percent":     {Type: "array", Items: pattern("", `^.+:[0-9]+(\.[0-9]{1,2})?%?$`), Description: "NAME:PERCENT, once for each upstream of the split; they add up to 100."},
}

// timePattern matches times such as 2m or 1h30m.
const timePattern = `^([0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns))+$`

func nonEmpty(text string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", MinLength: jsonschema.Ptr(1), Description: text}
}

func pattern(text, p string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: p, Description: text}
}

func truth(text string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "boolean", Description: text}
}

func among(text string, words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: text}
	for _, word := range words {
		s.Enum = append(s.Enum, word)
	}
	return s
}

// whole is a whole number; most is 0 for one that has no bound but that of the type.
func whole(text string, least, most float64) *jsonschema.Schema {
	if most == 0 {
		most = 1<<31 - 1
	}
	return &jsonschema.Schema{Type: "integer", Minimum: &least, Maximum: &most, Description: text}
}
