package perfevent_test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/proxy/internal/perfevent"
)

// sampled samples this process while it works until enough is known, and skips where perf events are refused.
func sampled(t *testing.T, work func(stop <-chan struct{})) *perfevent.Profile {
	t.Helper()
	stop := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() { work(stop) })
	p, err := perfevent.Sample(t.Context(), []int{os.Getpid()}, time.Second, 499)
	close(stop)
	working.Wait()
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("kernel.perf_event_paranoid does not let this user sample the kernel:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// names returns the frames of a sample, the outermost first.
func names(s *profile.Sample) (list []string) {
	for _, l := range slices.Backward(s.Location) {
		list = append(list, l.Line[0].Function.Name)
	}
	return list
}

//go:noinline
func burn(stop <-chan struct{}) (sum int) {
	for {
		select {
		case <-stop:
			return sum
		default:
			for i := range 1000 {
				sum += i * i
			}
		}
	}
}

// TestProgram: time that the program itself takes is of its functions, and most of it is counted.
func TestProgram(t *testing.T) {
	p := sampled(t, func(stop <-chan struct{}) { burn(stop) })
	var all, in int64
	for _, s := range p.Sample {
		all += s.Value[1]
		if slices.ContainsFunc(names(s), func(name string) bool { return strings.HasSuffix(name, "perfevent_test.burn") }) {
			in += s.Value[1]
		}
	}
	if in < all/2 || in == 0 || p.CheckValid() != nil {
		t.Errorf("%v of %v in the function, %v", time.Duration(in), time.Duration(all), p.CheckValid())
	}
}

// TestKernel: a stack of a system call begins in the program, and ends in the kernel.
func TestKernel(t *testing.T) {
	p := sampled(t, send)
	if p.Unnamed {
		t.Skip("kernel.kptr_restrict hides the names of the kernel's functions from this user")
	}
	for _, s := range p.Sample {
		list := names(s)
		program := slices.IndexFunc(list, func(name string) bool { return strings.HasSuffix(name, "perfevent_test.send") })
		kernel := slices.IndexFunc(list, func(name string) bool { return strings.Contains(name, "tcp_sendmsg") })
		if program >= 0 && kernel > program {
			return
		}
	}
	t.Errorf("no stack leads from the program to tcp_sendmsg: %v", p.Profile)
}

func send(stop <-chan struct{}) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	defer ln.Close()
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for b := make([]byte, 64<<10); err == nil; {
			_, err = c.Read(b)
		}
	})
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return
	}
	defer c.Close()
	for b := make([]byte, 16<<10); ; {
		select {
		case <-stop:
			return
		default:
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// TestAnotherProgram: a program that is not written in Go has frames of its libraries' functions and of the kernel, and its
// samples know their process. A process that has ended is left out.
func TestAnotherProgram(t *testing.T) {
	t.Parallel()
	program := exec.CommandContext(t.Context(), "head", "-c", "1T", "/dev/zero")
	if err := program.Start(); err != nil {
		t.Skip("no program to sample:", err)
	}
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait() // it was killed
	}()
	p, err := perfevent.Sample(t.Context(), []int{program.Process.Pid, 1 << 30}, time.Second/2, 499)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("kernel.perf_event_paranoid does not let this user sample the kernel:", err)
	}
	if err != nil || p.CheckValid() != nil {
		t.Fatal(err, p.CheckValid())
	}
	var library, kernel bool
	for _, s := range p.Sample {
		if got := s.Label["process"]; !slices.Equal(got, []string{strconv.Itoa(program.Process.Pid)}) {
			t.Errorf("a sample of process %v", got)
		}
		for _, l := range s.Location {
			f := l.Line[0].Function
			library = library || strings.Contains(f.Filename, "/lib") && !strings.HasPrefix(f.Name, "[")
			kernel = kernel || strings.HasPrefix(f.Filename, "[kernel")
		}
	}
	if !library || !kernel {
		t.Errorf("frames of a library: %v, of the kernel: %v, in %v", library, kernel, p.Profile)
	}
}

// TestNamesOfPrograms: programs have the names that package elf finds.
func TestNamesOfPrograms(t *testing.T) {
	t.Parallel()
	tool, _ := exec.LookPath("go") // its file has all symbols
	for _, path := range []string{"/proc/self/exe", "/bin/sh", tool} {
		file, err := elf.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		list, _ := file.Symbols()
		dynamic, _ := file.DynamicSymbols()
		var want []string
		for _, s := range append(list, dynamic...) {
			if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
				want = append(want, s.Name)
			}
		}
		got, lacking := perfevent.Functions(path)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) || len(lacking) > 0 {
			t.Errorf("%s: %d names, want %d, and it lacks %v", path, len(got), len(want), lacking)
		}
	}
}

// TestForeignProgram: of another user's program that is written in Go, the table of the Go linker is not read, which may take
// any memory. The profile says so.
func TestForeignProgram(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may give a file away")
	}
	whole, err := os.ReadFile("/proc/self/exe")
	path := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(err, os.WriteFile(path, whole, 0o700), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if _, lacking := perfevent.Functions(path); len(lacking) != 1 || !strings.Contains(lacking[0], "another user") {
		t.Errorf("it lacks %v", lacking)
	}
}

// TestHostileProgram: a program whose symbols or strings are said to be very large takes little memory. It is sampled with
// fewer names, and the profile says so. It is not parallel, because it measures memory.
func TestHostileProgram(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	const large = 400 << 20
	for _, of := range []string{".dynsym", ".dynstr", ".shstrtab", ".gopclntab"} {
		path := filepath.Join(t.TempDir(), "program")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		var header elf.Header64
		order := binary.NativeEndian
		_, errs := binary.Decode(whole, order, &header)
		file, err := elf.NewFile(bytes.NewReader(whole))
		if err = errors.Join(errs, err); err != nil {
			t.Fatal(err)
		}
		hostile := bytes.Clone(whole)
		i := slices.IndexFunc(file.Sections, func(s *elf.Section) bool { return s.Name == of })
		if i < 0 && strings.HasPrefix(of, ".dyn") {
			continue // built without cgo
		}
		order.PutUint64(hostile[header.Shoff+uint64(i)*uint64(header.Shentsize)+32:], large) // sh_size
		_, errs = f.Write(hostile)
		if err := errors.Join(errs, f.Truncate(2*large), f.Close()); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, lacking := perfevent.Functions(path)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > large*3/4 || len(lacking) != 1 || !strings.Contains(lacking[0], path) {
			t.Errorf("%s: %d MiB allocated, it lacks %v", of, n>>20, lacking)
		}
	}
}

// TestEarly: the end of the context ends it, with the profile so far.
func TestEarly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	_, err := perfevent.Sample(ctx, []int{os.Getpid()}, time.Hour, 99)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		t.Skip("kernel.perf_event_paranoid does not let this user sample the kernel:", err)
	}
	if err != nil || time.Since(began) > time.Minute {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestErrors: a process that is not there, a frequency that is none.
func TestErrors(t *testing.T) {
	if _, err := perfevent.Sample(t.Context(), []int{1 << 30}, time.Second, 99); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	if _, err := perfevent.Sample(t.Context(), []int{os.Getpid()}, time.Second, 0); !errors.Is(err, perfevent.ErrFrequency) {
		t.Errorf("no frequency: %v", err)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }
