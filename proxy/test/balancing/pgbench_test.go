package balancing

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

const benchClients = 4

type bench struct {
	cmd    *exec.Cmd
	output software.Output
	done   chan error
}

// bench has pgbench run a script until it is ended or its connections are lost.
func (f *failover) bench(addr, script string) *bench {
	f.T.Helper()
	f.scripts++
	path := filepath.Join(f.Dir, fmt.Sprintf("%d.sql", f.scripts))
	must(f.T, writeFile(path, script+";\n"))
	b := &bench{done: make(chan error, 1)}
	b.cmd = exec.Command(filepath.Join(software.Postgres(f.T), "pgbench"), "--no-vacuum", "--client", fmt.Sprint(benchClients),
		"--time", "600", "--rate", "200", "--progress", "1", "--file", path, conninfo(addr))
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.cmd.Stdout, b.cmd.Stderr = &b.output, &b.output
	must(f.T, b.cmd.Start())
	go func() { b.done <- b.cmd.Wait() }()
	f.T.Cleanup(func() { _ = b.cmd.Process.Kill() })
	// By its first report it has connected all of its clients.
	condition.Await(f.T, "pgbench reports", func() bool { return strings.Contains(b.output.String(), "progress: ") })
	return b
}

// end ends it early, by the signal of its own timer, and returns its report.
func (b *bench) end() (report string, err error) {
	_ = b.cmd.Process.Signal(syscall.SIGALRM)
	select {
	case err = <-b.done:
	case <-time.After(condition.Patience):
		err = errors.New("pgbench does not end")
	}
	return b.output.String(), err
}
