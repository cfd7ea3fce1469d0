package balancing

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

type penstock struct{ *program.Program }

// start runs penstock until the end of the test with a configuration, and with further flags.
func start(t *testing.T, configuration string, flags ...string) *penstock {
	t.Helper()
	return &penstock{program.Start(t, built, software.Dir(t, nil), configuration, append([]string{"--log", "json"}, flags...)...)}
}

// readAgain reloads the configuration, changed each time, while a client runs; the client must
// not fail. It returns the client's output. IDLE in the configuration is replaced by another time
// in each generation. Comments that begin with EXTRA become text in every other one.
func (p *penstock) readAgain(configuration string, client ...string) string {
	p.T.Helper()
	var out, complaints software.Output
	cmd := exec.Command(client[0], client[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &out, &complaints
	must(p.T, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for times := 0; ; times++ {
		select {
		case err := <-done:
			if err != nil || times == 0 {
				p.T.Errorf("%s, during %d reloads: %v\n%s", client[0], times, err, complaints.String())
			}
			p.T.Logf("the configuration was reloaded %d times meanwhile", times)
			return out.String()
		default:
			p.Reload(variant(configuration, p.State().Generation+1))
		}
	}
}

func variant(configuration string, generation int) string {
	text := strings.ReplaceAll(configuration, "IDLE", fmt.Sprintf("%dm", 10+generation))
	if generation%2 == 0 {
		text = strings.ReplaceAll(text, "# EXTRA ", "")
	}
	return text
}

func (p *penstock) at(listener string) (addr, host, port string) {
	p.T.Helper()
	addr = p.At(listener)
	host, port, err := net.SplitHostPort(addr)
	must(p.T, err)
	return addr, host, port
}

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

// refused returns how many clients of a listener were refused, and the counts by reason.
func refused(s *admin.Status, listener string) (n int64, reasons map[string]int64) {
	for _, l := range s.Listeners {
		if l.Name == listener {
			return l.Connections.Refused, l.Reasons
		}
	}
	return -1, nil
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
