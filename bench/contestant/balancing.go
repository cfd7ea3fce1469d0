package contestant

import (
	"slices"
	"text/template"
)

// The kinds of Balancing that are Penstock. The first only checks that its endpoints accept connections, the
// second also checks that they answer.
const (
	BalancingName = "penstock"
	CheckingName  = "penstock-checks"
)

// Balancing returns kinds that spread clients over Setting.Endpoints. CheckingName and the kinds after it check
// now and then that each endpoint answers an HTTP request. The kinds before it check at most that endpoints accept
// a connection.
func Balancing(threads int) []*Kind {
	redispatch := []string{"balance roundrobin", "option redispatch", "retries 3"}
	often := []string{"balance roundrobin", "option redispatch 1", "retries 3"}
	const observe = " observe layer4 error-limit 3 on-error mark-down"
	haproxyOf := func(lines []string, more ...string) *server {
		return haproxy(threads, copies, slices.Concat(lines, more)...)
	}
	return []*Kind{
		{BalancingName, "penstock run, its file has the endpoints and nothing else", balancer{text: balancingFile("")}},
		{"haproxy", "HAProxy: option redispatch, retries 3, check", haproxyOf(redispatch, "default-server check")},
		{
			"haproxy-observe", "HAProxy: option redispatch 1, retries 3, check fastinter 500ms downinter 500ms" + observe,
			haproxyOf(often, "default-server check fastinter 500ms downinter 500ms"+observe),
		},
		{"nginx", "nginx stream, as it is by default: proxy_next_upstream on, max_fails=1, fail_timeout=10s", nginx("", "")},
		{"nginx-tuned", "nginx stream: zone, fail_timeout=1s", nginx("endpoints", " max_fails=1 fail_timeout=1s")},
		{CheckingName, "penstock run: health_check http every second, every 250 ms while it changes", balancer{text: balancingFile(checkingText)}},
		{
			"haproxy-checks", "HAProxy: as haproxy-observe with option httpchk, inter 1s fastinter 250ms downinter 250ms fall 2",
			haproxyOf(often, "option httpchk GET /", "default-server check inter 1s fastinter 250ms downinter 250ms fall 2"+observe),
		},
	}
}

const checkingText = `    health_check: {type: http, interval: 1s, fast_interval: 250ms, fall: 2}
`

// balancingFile returns a file with more lines about the upstream.
func balancingFile(more string) *template.Template {
	return template.Must(template.New("balancing").Parse(`listeners: [{name: bench, bind: "{{.Listen}}", upstream: endpoints}]
upstreams:
  - name: endpoints
    endpoints:
{{- range .Endpoints}}
      - "{{.}}"
{{- end}}
` + more))
}
