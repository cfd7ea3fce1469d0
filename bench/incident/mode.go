package incident

import (
	"bytes"
	"fmt"
	"text/template"
	"time"
)

// The names of the modes. The others are compared with Off, and On is held to the bounds.
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

// Modes returns all, in the order of a report.
func Modes() []Mode {
	return []Mode{
		{Off, "nothing protects the clients", parse(offText)},
		{Least, "off, but for the policy, which looks at how many connections an endpoint has", parse(leastText)},
		{Defaults, "the defaults", parse(defaultsText)},
		{FirstByte, "that, and first_byte", parse(firstByteText)},
		{On, "tuned to the service", parse(onText)},
	}
}

// ModeNamed finds one.
func ModeNamed(name string) (*Mode, error) {
	var names []string
	for _, m := range Modes() {
		if m.Name == name {
			return &m, nil
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("no mode %q: write %s", name, list(names))
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

// onText has the time in which endpoints answer, and often checks that they answer, which is
// the clients' need. It has the same policy as off, so that the ratio does not measure the
// policy.
const onText = defaultsText + `    outlier_detection: {answer_within: {{.Within}}}
    health_check: {type: http, interval: 1s, fast_interval: 250ms, timeout: {{.FirstByte}}, fall: 2, rise: 4}
`

// File is the configuration for a listener and endpoints at these addresses. firstByte and
// within are the times for an endpoint's first byte and for its answer.
func (m *Mode) File(listen string, endpoints []string, firstByte, within time.Duration) string {
	var b bytes.Buffer
	// It is a constant text, and a buffer takes all.
	_ = m.text.Execute(&b, map[string]any{
		"Listen": listen, "Endpoints": endpoints, "FirstByte": firstByte.String(), "Within": within.String(),
	})
	return b.String()
}
