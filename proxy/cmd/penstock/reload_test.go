package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/rollback"
)

func TestReloadCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	r.write("a", "b")
	out, _ := r.tells(cli.ExitOK, "reload", "--config", r.file)
	if want := "  listener b added\ngeneration 2 is in force: 1 change\n"; out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
	r.has("a b")
	// A reload without changes is no generation: the way back stays.
	out, _ = r.tells(cli.ExitOK, "reload", r.file)
	if want := "the configuration is unchanged: generation 2 stays in force\n"; out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
	out, _ = r.tells(cli.ExitOK, "reload", r.file, "--confirm", "2m")
	if want := "the configuration is unchanged: generation 2 stays in force, and nothing waits to be confirmed\n"; out != want {
		t.Errorf("it says %q, want %q", out, want)
	}
	// Problems are printed as by penstock check, and the configuration in force can be queried
	// even if the file is invalid.
	r.writeText("admin: {bind: \"unix:" + filepath.Join(r.dir, "admin.sock") + "\"}\nlisteners: 1\n")
	_, check := r.tells(cli.ExitError, "check", "--config", r.file)
	_, byFile := r.tells(cli.ExitError, "reload", "--config", r.file)
	_, byAddress := r.tells(cli.ExitError, "reload", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
	if check == "" || byFile != check || byAddress != check {
		t.Errorf("check says %q, reload %q, and with --admin %q", check, byFile, byAddress)
	}
	r.has("a b")
	r.writeText("listeners: 1\n")
	if _, complaint := r.tells(cli.ExitError, "reload", "--config", r.file); !strings.Contains(complaint, "no process runs "+r.file) {
		t.Errorf("of a file without an address it says %q", complaint)
	}
	out, _ = r.tells(cli.ExitOK, "rollback", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
	if want := "  listener b removed; its 5 sessions are reset after 5m (drain_timeout)\ngeneration 1 is in force again: 1 change\n"; !strings.HasPrefix(out, want) {
		t.Errorf("it says %q, want %q", out, want)
	}
	r.has("a")
}

func TestReloadUntilConfirmed(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	r.write("b")
	out, _ := r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2m", "--rollback-if", "failures>50")
	if !strings.Contains(out, "generation 2 is in force: 2 changes\nrun penstock confirm --generation 2 before ") || !strings.HasSuffix(out, ", or it is rolled back; at once if failures>50\n") {
		t.Errorf("it says %q", out)
	}
	_, complaint := r.tells(cli.ExitError, "reload", "--config", r.file)
	if !strings.HasPrefix(complaint, "penstock: generation 2 waits to be confirmed, or will be rolled back at ") {
		t.Errorf("a second one: %q", complaint)
	}
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"the reload was refused, nothing was changed","by":"SIGHUP","error":"generation 2 waits to be confirmed`)
	// The status has the refusal for as long as that generation waits.
	refusal := func(want bool) {
		t.Helper()
		out, _ := r.tells(cli.ExitOK, "status", "--config", r.file, "--problems")
		if strings.Contains(out, "was refused, and nothing was changed: generation ") != want {
			t.Errorf("the status says %q", out)
		}
	}
	refusal(true)
	if _, complaint := r.tells(cli.ExitError, "confirm", "--config", r.file, "--generation", "1"); complaint != "penstock: too late to confirm generation 1: generation 2 waits to be confirmed\n" {
		t.Errorf("of another generation: %q", complaint)
	}
	if out, _ = r.tells(cli.ExitOK, "confirm", "--config", r.file); out != "generation 2 is confirmed\n" {
		t.Errorf("it says %q", out)
	}
	refusal(false)
	r.has("b")
	r.tells(cli.ExitError, "confirm", "--config", r.file)
	r.write("c")
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2m")
	r.tells(cli.ExitError, "reload", "--config", r.file)
	refusal(true)
	if out, _ = r.tells(cli.ExitOK, "rollback", "--config", r.file); !strings.Contains(out, "\ngeneration 2 is in force again: 2 changes\n"+r.file+" still has generation 3: ") {
		t.Errorf("it says %q", out)
	}
	refusal(false)
	r.has("b")
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2m", "--rollback-if", "failures>50")
	r.has("c")
	r.balancer.fail(51)
	r.says(`"msg":"configuration rolled back","generation":2,"by":"penstock","from":4,"cause":"failures rose by 51, the bound is failures>50"`)
	r.has("b")
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "1s")
	r.says(`"from":5,"cause":"it was not confirmed within 1s"`)
	r.has("b")
	if _, complaint := r.tells(cli.ExitError, "reload", "--config", r.file, "--confirm", "1m", "--rollback-if", "tears>1"); !strings.Contains(complaint, `no counter "tears": write one of failures, refused`) {
		t.Errorf("of a counter that is not there: %q", complaint)
	}
}

// TestRollbackToAGeneration: the generations are listed with their changes, and each can be returned to. The file is
// refused only while another configuration is in force.
func TestRollbackToAGeneration(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	for _, name := range []string{"b", "c", "d"} {
		r.write(name)
		r.tells(cli.ExitOK, "reload", r.file)
	}
	still := r.file + " still has generation 4: "
	for _, step := range []struct{ to, has, says string }{
		{"2", "b", "\ngeneration 2 is in force again: 2 changes\n" + still},
		{"1", "a", "\ngeneration 1 is in force again: 2 changes\n" + still},
		{"3", "c", "\ngeneration 3 is in force again: 2 changes\n" + still},
		{"4", "d", "\ngeneration 4 is in force again: 2 changes\n"},
	} {
		out, _ := r.tells(cli.ExitOK, "rollback", r.file, "--to", step.to)
		if r.has(step.has); !strings.Contains(out, step.says) || strings.Contains(out, "still has") != strings.Contains(step.says, "still has") {
			t.Errorf("to %q it says %q, want %q", step.to, out, step.says)
		}
	}
	out, _ := r.tells(cli.ExitOK, "rollback", r.file, "--list")
	if lines := strings.Split(out, "\n"); len(lines) < 3 || !strings.HasPrefix(lines[0], "generation  4  current ") || lines[1] != "      listener c removed" || lines[2] != "      listener d added" {
		t.Errorf("the list is %q", out)
	}
	r.has("d")
	if _, complaint := r.tells(cli.ExitError, "rollback", r.file, "--to", "9"); complaint != "penstock: nothing to return to: generation 9 is not kept: the kept generations are 1, 2, 3, 4\n" {
		t.Errorf("it says %q", complaint)
	}
	r.tells(cli.ExitUsage, "rollback", r.file, "--to", "0")
	r.tells(cli.ExitUsage, "rollback", r.file, "--to", "1", "--list")
	r.tells(cli.ExitUsage, "rollback", r.file, "--config", r.file)
}

// TestGenerationsAreKeptAsText: of ten reloads no more parsed configurations stay in memory than of two, and the way back to the first is there.
func TestGenerationsAreKeptAsText(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	for i := range 9 {
		r.write(fmt.Sprintf("b%d", i))
		r.tells(cli.ExitOK, "reload", r.file)
	}
	stay := func() (n int) {
		runtime.GC()
		r.balancer.mu.Lock()
		defer r.balancer.mu.Unlock()
		for _, cfg := range r.balancer.had {
			if cfg.Value() != nil {
				n++
			}
		}
		return n
	}
	if !condition.Eventually(func() bool { return stay() <= 2 }) {
		t.Errorf("%d configurations stay in memory", stay())
	}
	r.tells(cli.ExitOK, "rollback", r.file, "--to", "1")
	r.has("a")
}

// TestMemoryIsGivenBack: what the reading of a large file has taken does not stay with the process. It is alone.
func TestMemoryIsGivenBack(t *testing.T) {
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapSys - m.HeapReleased
	}
	before, reclaim := held(), giveBack()
	large := make([]byte, 4*muchGarbage)
	for i := 0; i < len(large); i += 4096 {
		large[i] = 1
	}
	if held() < before+muchGarbage {
		t.Error("nothing was taken")
	}
	runtime.KeepAlive(large)
	large = nil
	if reclaim(); held() > before+muchGarbage {
		t.Errorf("%d bytes are held, and %d before", held(), before)
	}
}

// TestReloadsAtOnce: each call returns the generation that it has made, and no other.
func TestReloadsAtOnce(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	client, err := admin.NewClient("unix:" + filepath.Join(r.dir, "admin.sock"))
	must(t, err)
	var all sync.WaitGroup
	told := make(chan int, 16*100)
	for i := range 16 {
		all.Go(func() {
			for j := range cap(told) / 16 {
				next := fmt.Sprintf("%s.%d", r.file, i) // renamed, so that no reload reads a part of it
				err := os.WriteFile(next, []byte(r.text("admin.sock", string("abc"[(i+j)%3]))), 0o600)
				if err = errors.Join(err, os.Rename(next, r.file)); err != nil {
					t.Error(err)
				}
				done, err := client.Reload(t.Context(), rollback.Options{})
				if err != nil {
					t.Error(err)
				}
				if len(done.Changes) > 0 {
					told <- done.Generation
				}
			}
		})
	}
	all.Wait()
	close(told)
	seen := map[int]bool{}
	if len(told) < 10 {
		t.Errorf("%d reloads have changed something", len(told))
	}
	for n := range told {
		if seen[n] || n < 2 || n > 1+cap(told) {
			t.Fatalf("generation %d is told of twice, or is none", n)
		}
		seen[n] = true
	}
}

// TestSavesAtOnce: of commands that save at the same time each changes the file, and no change is lost.
func TestSavesAtOnce(t *testing.T) {
	t.Parallel()

	const n = 8
	text := "listeners: [{name: l, bind: \"unix:%[1]s/l\", upstream: u}]\nupstreams:\n  - name: u\n    health_check: off\n    endpoints:\n"
	for i := range n {
		text += fmt.Sprintf("      - {name: e%d, address: \"127.0.0.1:%d\"}\n", i, i+1)
	}
	p := startServing(t, text+"# at %[2]s\n")
	var commands sync.WaitGroup
	for i := range n {
		commands.Go(func() {
			if code, out, stderr := call("endpoint", "weight", "u", fmt.Sprint("e", i), fmt.Sprint(i+2), "--save", "--config", p.file); code != cli.ExitOK || !strings.Contains(out, "saved in") {
				t.Errorf("exit code %d, %q, %q", code, out, stderr)
			}
		})
	}
	commands.Wait()
	saved, err := os.ReadFile(p.file)
	must(t, err)
	for i := range n {
		if want := fmt.Sprintf("address: \"127.0.0.1:%d\", weight: %d", i+1, i+2); !strings.Contains(string(saved), want) {
			t.Errorf("no %s in\n%s", want, saved)
		}
	}
}

// TestSaveAfterARemoval: an endpoint that was removed by hand stays removed, and one that drains after its removal is not
// taken for its successor of the same name.
func TestSaveAfterARemoval(t *testing.T) {
	t.Parallel()

	p := startServing(t, `
listeners: [{name: web, bind: "unix:%[1]s/web", upstream: shop}]
upstreams: [{name: shop, health_check: off, endpoints: [{name: a, address: "unix:%[1]s/nobody"}]}]
# %[2]s
`)
	echo := sockets.Server(t, sockets.Echo)
	for _, step := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitOK, "none → ", []string{"add", "shop", echo, "--name", "b"}},
		{cli.ExitOK, "ready → removed", []string{"remove", "shop", "a"}},
		{cli.ExitError, "nothing was changed: endpoint a of shop was removed by hand: run penstock endpoint ready shop a first", []string{"weight", "shop", "a", "5", "--save"}},
		{cli.ExitOK, "ready → removed", []string{"remove", "shop", "b"}},
		{cli.ExitOK, "none → ", []string{"add", "shop", "127.0.0.1:1", "--name", "b", "--weight", "5", "--zone", "z"}},
		{cli.ExitOK, "127.0.0.1:1, weight 5, as before\nsaved", []string{"add", "shop", "127.0.0.1:1", "--name", "b", "--save"}},
	} {
		if code, out, stderr := call(append([]string{"endpoint", step.args[0], "--config", p.file}, step.args[1:]...)...); code != step.code || !strings.Contains(out+stderr, step.says) {
			t.Errorf("%q: exit code %d, %s%s, want %s", step.args, code, out, stderr, step.says)
		}
		if step.args[0] == "add" && step.args[2] == echo {
			defer p.echoes(t).Close()
		}
	}
	saved, err := os.ReadFile(p.file)
	must(t, err)
	if want := `/nobody"}, {address: "127.0.0.1:1", name: "b", weight: 5, zone: "z"}]`; !strings.Contains(string(saved), want) {
		t.Errorf("no %s in\n%s", want, saved)
	}
}

// TestSaveNeedsAFile: the process at an address that the user gives does not choose the file that the command changes.
func TestSaveNeedsAFile(t *testing.T) {
	t.Parallel()

	p := startServing(t, `
listeners: [{name: web, bind: "unix:%[1]s/web", upstream: shop}]
upstreams: [{name: shop, health_check: off, endpoints: [{name: a, address: %[2]q}]}]
`)
	before, err := os.ReadFile(p.file)
	must(t, err)
	at := "unix:" + filepath.Join(p.dir, "admin")
	save := []string{"endpoint", "weight", "shop", "a", "5", "--save"}
	for name, variable := range map[string]string{"flag": "", "variable": at} {
		var complaint strings.Builder
		e := &cli.Env{Args: save, Stdout: io.Discard, Stderr: &complaint, Getenv: func(name string) string {
			if name == "PENSTOCK_ADMIN" {
				return variable
			}
			return ""
		}}
		if variable == "" {
			e.Args = append(e.Args, "--admin", at)
		}
		if code := run(e); code != cli.ExitUsage {
			t.Errorf("%s: exit code %d, %s", name, code, &complaint)
		}
	}
	if after, err := os.ReadFile(p.file); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%s, %v", after, err)
	}
	if code, _, stderr := call(append(save, "--admin", at, "--config", p.file)...); code != cli.ExitOK {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestSaveKeepsALaterEdit: what another program writes during a reload that is refused stays in the file.
func TestSaveKeepsALaterEdit(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	upstream, endpoint := r.balancer.cfg.Upstreams[0].Name, r.balancer.cfg.Upstreams[0].Endpoints[0].Name
	save := func() string {
		_, stderr := r.tells(cli.ExitError, "endpoint", "weight", upstream, endpoint, "7", "--save", "--config", r.file)
		return stderr
	}
	before, err := os.ReadFile(r.file)
	must(t, err)
	r.balancer.bad = errors.New("no room")
	if stderr := save(); !strings.Contains(stderr, "is as it was: ") {
		t.Errorf("it says %q", stderr)
	}
	if now, err := os.ReadFile(r.file); err != nil || string(now) != string(before) {
		t.Errorf("%s, %v", now, err)
	}
	later := append(before, "# later\n"...)
	r.balancer.applying = func() { must(t, os.WriteFile(r.file, later, 0o600)) }
	if stderr := save(); !strings.Contains(stderr, "was not written back: replace "+r.file+": another program changed it") {
		t.Errorf("it says %q", stderr)
	}
	if now, err := os.ReadFile(r.file); err != nil || string(now) != string(later) {
		t.Errorf("%s, %v", now, err)
	}
	// An error after the reload says that the file has the change.
	r.balancer.bad, r.balancer.applying = nil, nil
	if stderr := save(); !strings.Contains(stderr, r.file+" has the change, and was reloaded, but an earlier change by hand may still be in force: no turn") {
		t.Errorf("it says %q", stderr)
	}
}

// TestSaveTakesNoOtherEdit: what another program writes at any moment before a command with --save replaces the file does not
// come into force with the command's change.
func TestSaveTakesNoOtherEdit(t *testing.T) {
	t.Parallel()

	for at, before := 1, true; before; at++ {
		r := startRun(t, nil, "a")
		b, looks, other := r.balancer, 0, r.text("admin.sock", "a", "b")
		before = false
		b.mu.Lock()
		upstream, endpoint := b.cfg.Upstreams[0].Name, b.cfg.Upstreams[0].Endpoints[0].Name
		b.looking = func() {
			if looks++; looks == at {
				text, err := os.ReadFile(r.file)
				if before = err == nil && !strings.Contains(string(text), "weight"); before {
					must(t, os.WriteFile(r.file, []byte(other), 0o600))
				}
			}
		}
		b.mu.Unlock()
		_, _, stderr := call("endpoint", "weight", upstream, endpoint, "7", "--save", "--config", r.file)
		b.mu.Lock()
		b.looking = nil
		if before && !strings.HasPrefix(stderr, "penstock: nothing was changed: ") {
			t.Errorf("look %d: %q", at, stderr)
		}
		b.mu.Unlock()
		r.has("a")
	}
}

// TestSaveSeesIncludedFiles: what another program writes into another file of the configuration before a command with --save has
// written its own does not come into force with the command's change, which is taken back.
func TestSaveSeesIncludedFiles(t *testing.T) {
	t.Parallel()

	dir, weight := t.TempDir(), 7
	main, sub := filepath.Join(dir, "penstock.yaml"), filepath.Join(dir, "sub.yaml")
	const listener, text = `listeners: [{name: %s, bind: "unix:l.sock", upstream: u}]`, "include: [sub.yaml]\nupstreams: [{name: u, endpoints: [\"127.0.0.1:1\"]}]\n"
	must(t, errors.Join(os.WriteFile(main, []byte(text), 0o600), os.WriteFile(sub, fmt.Appendf(nil, listener, "a"), 0o600)))
	edited, err := config.EditEndpoint(main, os.LookupEnv, &config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:1", Weight: &weight})
	must(t, err)
	l, err := lockFile(t.Context(), main, 0)
	must(t, err)
	defer l.release()
	client, err := admin.NewClient("unix:" + filepath.Join(dir, "nobody.sock"))
	must(t, err)
	must(t, os.WriteFile(sub, fmt.Appendf(nil, listener, "b"), 0o600))
	err = l.writeEdited(t.Context(), client, main, os.LookupEnv, edited)
	if now, _ := os.ReadFile(main); string(now) != text || err == nil || !strings.Contains(err.Error(), "nothing was changed: another program changed a file of "+main) {
		t.Errorf("%v\n%s", err, now)
	}
	must(t, os.WriteFile(sub, fmt.Appendf(nil, listener, "a"), 0o600))
	if err := l.writeEdited(t.Context(), client, main, os.LookupEnv, edited); !errors.Is(err, admin.ErrNotRunning) {
		t.Errorf("no other file has changed: %v", err) // nobody takes the reload
	}
}

// TestLockedFile: a command does not wait for ever for a lock of the file, nor for one of a file that was replaced.
func TestLockedFile(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, nil, 0o600))
	l, err := lockFile(t.Context(), path, 0)
	must(t, err)
	if _, err := lockFile(t.Context(), path, 0); err == nil || !strings.Contains(err.Error(), "another command has locked "+path) {
		t.Error(err)
	}
	must(t, l.replace(path, nil, []byte("b")))
	if _, err := lockFile(t.Context(), path, 0); err == nil {
		t.Error("the file that replaces it is not locked")
	}
	l.release()
	again, err := lockFile(t.Context(), path, 0)
	must(t, err)
	again.release()
}

// TestReplaceKeepsAttributes: the file that replaces another has its ACL, its labels and its other attributes, or none.
func TestReplaceKeepsAttributes(t *testing.T) {
	t.Parallel()

	entry := func(tag, rights uint16, id uint32) []byte { // acl(5), as in linux/posix_acl_xattr.h
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, tag), rights), id)
	}
	const nobody = 1<<32 - 1
	acl := slices.Concat([]byte{2, 0, 0, 0}, entry(1, 6, nobody), entry(2, 4, 5001), entry(4, 0, nobody), entry(16, 4, nobody), entry(32, 0, nobody))
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, nil, 0o600))
	if err := syscall.Setxattr(path, "system.posix_acl_access", acl, 0); errors.Is(err, syscall.ENOTSUP) {
		t.Skip("the file system of", dir, "has no ACLs")
	}
	want := map[string][]byte{"system.posix_acl_access": acl, "user.test": []byte("1"), "user.empty": {}}
	if os.Geteuid() == 0 {
		want["security.test"] = []byte("label")
	}
	for name, value := range want {
		if err := syscall.Setxattr(path, name, value, 0); name == "security.test" && errors.Is(err, syscall.EPERM) {
			delete(want, name)
		} else {
			must(t, err)
		}
	}
	l, err := lockFile(t.Context(), path, 0)
	must(t, err)
	defer l.release()
	has := func(mode os.FileMode) {
		t.Helper()
		f, err := os.Open(path)
		must(t, err)
		defer f.Close()
		info, err := f.Stat()
		must(t, err)
		got, err := sys.Attributes(int(f.Fd()), func(name string) bool { _, wanted := want[name]; return wanted || name == "system.posix_acl_access" })
		if err != nil || !maps.EqualFunc(got, want, bytes.Equal) || info.Mode() != mode {
			t.Errorf("it has %q and mode %v, want %q and %v (%v)", got, info.Mode(), want, mode, err)
		}
	}
	must(t, l.replace(path, nil, []byte("b")))
	has(0o640)
	// What the directory gives to new files is not for this one.
	must(t, errors.Join(syscall.Setxattr(dir, "system.posix_acl_default", acl, 0), syscall.Removexattr(path, "system.posix_acl_access"), os.Chmod(path, 0o640)))
	delete(want, "system.posix_acl_access")
	must(t, l.replace(path, []byte("b"), []byte("c")))
	has(0o640)
}

// TestGroupOfAnother: a user who may not give a file its group is told so, unless the group has no rights of its own.
func TestGroupOfAnother(t *testing.T) {
	t.Parallel()

	if !privilege.Ordinary(t) {
		return
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer f.Close()
	for mode, want := range map[os.FileMode]string{0o644: "", 0o600: "", 0o640: "gid 0, and has mode 0640", 0o660: "gid 0, and has mode 0660"} {
		must(t, f.Chmod(mode))
		info, err := f.Stat()
		must(t, err)
		info.Sys().(*syscall.Stat_t).Gid = 0
		if err := keepOwner(f, info); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
}
