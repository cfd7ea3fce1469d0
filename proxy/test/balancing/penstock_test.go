package balancing

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

// A penstock is a running penstock run.
type penstock struct{ *program.Program }

// start runs penstock until the end of the test with a configuration, and with further flags.
func start(t *testing.T, configuration string, flags ...string) *penstock {
	t.Helper()
	return &penstock{program.Start(t, built, software.Dir(t, nil), configuration, append([]string{"--log", "json"}, flags...)...)}
}

// at returns the address of a listener.
func (p *penstock) at(listener string) (addr, host, port string) {
	p.T.Helper()
	addr = p.At(listener)
	host, port, err := net.SplitHostPort(addr)
	must(p.T, err)
	return addr, host, port
}

// endpointOf returns the status of an endpoint.
func endpointOf(s *admin.Status, upstream, name string) (e admin.Endpoint) {
	for _, u := range s.Upstreams {
		for _, e := range u.Endpoints {
			if u.Name == upstream && e.Name == name {
				return e
			}
		}
	}
	return e
}

// stop ends the program, and returns the summary that it prints at the end.
func (p *penstock) stop() (s admin.Summary) {
	p.T.Helper()
	p.End()
	must(p.T, json.NewDecoder(strings.NewReader(p.Stdout.String())).Decode(&s))
	if s.Connections.Accepted == 0 || s.Connections.Active != 0 || s.Pipes.Leased != 0 {
		p.T.Errorf("the summary at the end is %+v", s)
	}
	return s
}
