package incident

import (
	"bytes"
	"text/template"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
)

// Failures are all measured failures, in the order of a report.
var Failures = []endpoint.Failure{endpoint.Silent, endpoint.Slow, endpoint.Refuse}

// The names of the modes. The others are compared with Off. On must reach the bounds.
const (
	Off       = "off"
	Least     = "least_conn"
	Defaults  = "defaults"
	FirstByte = "first_byte"
	On        = "on"
)

// A Mode is a configuration.
type Mode struct {
	Name  string
	About string // one line
	text  *template.Template
}

// Modes returns all modes in the order of a report.
func Modes() []Mode {
	return []Mode{
		{Off, "nothing protects the clients", parse(offText)},
		{Least, "as off, but with the policy least_conn, which counts the connections of an endpoint", parse(leastText)},
		{Defaults, "the defaults", parse(defaultsText)},
		{FirstByte, "that, and first_byte", parse(firstByteText)},
		{On, "tuned to the service", parse(onText)},
	}
}

func parse(text string) *template.Template { return template.Must(template.New("mode").Parse(text)) }

const endpointsText = `    endpoints:
{{- range $i, $a := .Endpoints}}
      - {name: e{{$i}}, address: "{{$a}}"}
{{- end}}
`

const offText = `listeners: [{name: shop, bind: "{{.Listen}}", upstream: shop}]
upstreams:
  - name: shop
` + endpointsText + `    health_check: off
    outlier_detection: off
    circuit_breaker: off
    retry: {attempts: 0}
`

const leastText = offText + `    balance: least_conn
`

const defaultsText = `listeners: [{name: shop, bind: "{{.Listen}}", upstream: shop}]
upstreams:
  - name: shop
` + endpointsText

const firstByteText = `listeners:
  - name: shop
    bind: "{{.Listen}}"
    upstream: shop
    timeouts: {first_byte: {{.FirstByte}}}
upstreams:
  - name: shop
` + endpointsText

// onText limits how long endpoints may take to answer, and checks often that they answer, as the clients need it.
// Its policy is the same as in off, so that the ratio does not measure the policy.
const onText = defaultsText + `    outlier_detection: {answer_within: {{.Within}}}
    health_check: {type: http, interval: 1s, fast_interval: 250ms, timeout: {{.FirstByte}}, fall: 2, rise: 4}
`

// File returns the configuration for a listener and endpoints at these addresses. firstByte and within limit the
// time for an endpoint's first byte and for its whole answer.
func (m *Mode) File(listen string, endpoints []string, firstByte, within time.Duration) string {
	var b bytes.Buffer
	// There is no error: the text is constant, and a buffer accepts everything.
	_ = m.text.Execute(&b, map[string]any{
		"Listen": listen, "Endpoints": endpoints, "FirstByte": firstByte.String(), "Within": within.String(),
	})
	return b.String()
}
