package traffic

import (
	"bufio"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

// testExample runs the example of the README.
func testExample(t *testing.T) {
	cmd := exec.Command(forwarder, "127.0.0.1:0", startEcho(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	var log software.Output
	cmd.Stderr = &log
	must(t, cmd.Start())
	end := sync.OnceFunc(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	t.Cleanup(end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if !ok {
		t.Fatalf("forward prints %q", line)
	}

	c, err := net.Dial("tcp", addr)
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	echo(t, c.(*net.TCPConn), randomBytes(bulkSize))
	c.Close()
	if !condition.Eventually(func() bool { return strings.Contains(log.String(), " eof\n") }) {
		t.Errorf("forward does not report a session that ended by end of file:\n%s", log.String())
	}
	end()
}
