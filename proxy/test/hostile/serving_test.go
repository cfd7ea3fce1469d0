package hostile_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/server"
)

// servingName is the name of a test's binary that is a load balancer, so that its memory and descriptors are its own.
const servingName = "penstock-hostile-serving"

// A footprint is the user memory of a load balancer, once its garbage was collected.
type footprint struct {
	Heap, Stacks int64
	Arena        int64 // leased
	Resident     int64 // anonymous memory of the process, as the kernel has it
	Active       int64 // clients
	Goroutines   int64
	Pauses       int64 // of accepting
	Turns        int64 // of the loops
	Refused      map[string]int64
	Addresses    map[string]string
}

// used is the memory that something needs, without what the runtime and the kernel keep beside it.
func (f *footprint) used() int64 { return f.Heap + f.Stacks + f.Arena }

// serveHere serves a configuration until the end of standard input, and writes a footprint for each line there. A second argument bounds its descriptors.
func serveHere(args []string) error {
	if len(args) > 1 {
		most, err := strconv.ParseUint(args[1], 10, 64)
		if err == nil {
			err = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: most})
		}
		if err != nil {
			return err
		}
	}
	cfg, problems := config.Load(args[0], os.LookupEnv)
	if len(problems) > 0 {
		return fmt.Errorf("%v", problems)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := server.Open(ctx, cfg, server.Options{Loops: 2, MaxConnections: 20_000})
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := json.NewEncoder(os.Stdout).Encode(footprintOf(s)); err != nil {
			return err
		}
	}
	stop()
	s.Cut()
	<-served
	return nil
}

func footprintOf(s *server.Server) *footprint {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	sum := s.Summary()
	f := &footprint{
		Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse), Arena: sum.Arena.Used, Active: sum.Connections.Active,
		Goroutines: sum.Goroutines, Pauses: sum.AcceptPauses, Refused: sum.RefusedBy, Addresses: make(map[string]string),
	}
	for _, l := range sum.Loops {
		f.Turns += l.Turns
	}
	status, _ := os.ReadFile("/proc/self/status")
	if _, after, ok := bytes.Cut(status, []byte("RssAnon:")); ok {
		kib, _ := strconv.ParseInt(strings.Fields(string(after))[0], 10, 64)
		f.Resident = kib << 10
	}
	for _, l := range s.Status().Listeners {
		if len(l.Addresses) > 0 {
			f.Addresses[l.Name] = l.Addresses[0]
		}
	}
	return f
}

// A serving is a load balancer in a process of its own, until the end of the test.
type serving struct {
	t   *testing.T
	pid int
	in  *bufio.Writer
	out *json.Decoder
	at  map[string]string // addresses by listener
}

// startServing has a load balancer serve a configuration in a process of its own, with files beside it.
func startServing(t *testing.T, text string, files ...string) *serving {
	t.Helper()
	return startWithin(t, nil, text, files...)
}

func startWithin(t *testing.T, further []string, text string, files ...string) *serving {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i+1 < len(files); i += 2 {
		must(t, os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600))
	}
	path := filepath.Join(dir, "penstock.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{path}, further...)...)
	cmd.Args[0] = servingName
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	s := &serving{t: t, pid: cmd.Process.Pid, in: bufio.NewWriter(in), out: json.NewDecoder(out)}
	s.at = s.footprint().Addresses
	return s
}

func (s *serving) footprint() *footprint {
	s.t.Helper()
	_, err := s.in.WriteString("\n")
	must(s.t, err)
	must(s.t, s.in.Flush())
	f := new(footprint)
	must(s.t, s.out.Decode(f))
	return f
}

// steady waits until so many clients are there, and memory does not grow any more.
func (s *serving) steady(clients int64) *footprint {
	s.t.Helper()
	last, still := new(footprint), 0
	for end := time.Now().Add(condition.Patience); ; {
		f := s.footprint()
		if f.Active != clients || f.used()-last.used() > 64<<10 {
			still = 0
		} else if still++; still == 2 {
			return f
		}
		if last = f; time.Now().After(end) {
			s.t.Fatalf("%d clients, want %d: %+v", f.Active, clients, f)
		}
	}
}
