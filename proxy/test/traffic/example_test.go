package traffic

import (
	"bufio"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
)

func testExample(t *testing.T) {
	cmd := exec.Command(forwarder, "127.0.0.1:0", sockets.Server(t, sockets.Echo))
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
	const size = 32 << 20
	sent, got := rand.NewChaCha8([32]byte{}), sha256.New()
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = io.CopyN(c, sent, size) })
	_, err = io.CopyN(got, c, size)
	must(t, err)
	sending.Wait()
	want := sha256.New()
	_, _ = io.CopyN(want, rand.NewChaCha8([32]byte{}), size)
	if digest(got) != digest(want) {
		t.Error("other bytes came back")
	}
	c.Close()
	if !condition.Eventually(func() bool { return strings.Contains(log.String(), " eof\n") }) {
		t.Errorf("forward does not report a session that ended by end of file:\n%s", log.String())
	}
	end()
}
