package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/cli"
)

// TestHangupReloads: SIGHUP reloads. An invalid configuration changes nothing, and is logged. An
// admin socket that was removed or replaced is made again nevertheless.
func TestHangupReloads(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	r.writeText(strings.Replace(r.text("admin.sock", "a", "b"), "upstreams: [", "upstreams: [{name: spare, endpoints: [\"127.0.0.1:1\"]}, ", 1))
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"configuration warning","file":"[^"]*/penstock.yaml","line":\d+,"cause":"`)
	r.says(`"msg":"configuration in force","generation":2,"by":"SIGHUP","changes":"1 listener added, `)
	r.has("a b")
	r.writeText("listeners: [{name: a, bond: 1}]\nsurprise: 1\n")
	must(t, os.Remove(filepath.Join(r.dir, "admin.sock")))
	r.hangups <- syscall.SIGHUP
	r.says(`"level":"ERROR","msg":"configuration problem","file":"[^"]*penstock.yaml","line":1,.*bond`)
	r.says(`"level":"ERROR","msg":"configuration problem","file":"[^"]*penstock.yaml","line":2,.*surprise`)
	r.says(`"msg":"the reload was refused, nothing was changed","by":"SIGHUP"`)
	r.says(`"msg":"admin listens"`, 2)
	r.has("a b")
	must(t, os.Remove(filepath.Join(r.dir, "admin.sock")))
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(r.dir, "admin.sock")})
	must(t, err)
	dead.SetUnlinkOnClose(false)
	must(t, dead.Close())
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"admin listens"`, 3)
	r.has("a b")
	r.balancer.mu.Lock()
	r.balancer.bad = errors.New("no room")
	r.balancer.mu.Unlock()
	r.write("c")
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"the reload was refused, nothing was changed","by":"SIGHUP","error":"no room"`)
	r.has("a b")
	if _, complaint := r.tells(cli.ExitError, "rollback", "--config", r.file); complaint != "penstock: rollback to generation 1: no room\n" {
		t.Errorf("a rollback that fails says %q", complaint)
	}
	r.has("a b")
}

// TestAdminMoves with a reload, and back with a rollback.
func TestAdminMoves(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	other := filepath.Join(r.dir, "other.sock")
	r.writeText(r.text("other.sock", "a"))
	r.tells(cli.ExitError, "reload", "--config", r.file) // it prints the new address
	r.tells(cli.ExitOK, "reload", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
	r.tells(cli.ExitOK, "rollback", "--config", r.file)
	_, complaint := r.tells(cli.ExitError, "confirm", "--admin", "unix:"+other)
	if want := "penstock: unix:" + other + ": no process runs there\n"; complaint != want {
		t.Errorf("it says %q, want %q", complaint, want)
	}
	// An address that is not available changes nothing.
	r.writeText(r.text("no/such.sock", "b"))
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"the reload was refused, nothing was changed","by":"SIGHUP","error":"admin: listen on unix:`)
	r.has("a")
	r.tells(cli.ExitOK, "plan", "--config", r.file, "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
}

func TestPlanCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a", "b")
	planned := filepath.Join(r.dir, "planned.yaml")
	text := strings.NewReplacer("127.0.0.1:1\"", "127.0.0.1:9\"", ":2001", ":2002").Replace(r.text("admin.sock", "a", "c"))
	must(t, os.WriteFile(planned, []byte(text), 0o644))
	out, _ := r.tells(cli.ExitOK, "plan", "--config", planned)
	for _, want := range []string{
		planned + ": 4 changes to generation 1 (now 10 connections)\n",
		"  listener b removed\n    5 connections drain, and are reset after 5m\n", "  listener c added\n  ",
		"  endpoint up/127.0.0.1:1 removed\n    3 connections drain, and are reset after 5m\n", "  endpoint up/127.0.0.1:9 added\n",
		"penstock reload reads " + r.file + ": copy this file there first\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it says %q, want %q", out, want)
		}
	}
	r.has("a b")
	// An address that stays keeps its socket, and its sessions, whichever listener it belongs
	// to by then.
	for text, fate := range map[string]string{
		r.text("admin.sock", "a", "c"):                                       "  listener b removed\n    5 connections go on\n",
		strings.Replace(r.text("admin.sock", "a", "b"), ":2001", ":2002", 1): ":2001] → [127.0.0.1:2002]\n    5 connections drain, and are reset after 5m\n",
	} {
		must(t, os.WriteFile(planned, []byte(text), 0o644))
		if out, _ := r.tells(cli.ExitOK, "plan", "--config", planned); !strings.Contains(out, fate) {
			t.Errorf("it says %q, want %q", out, fate)
		}
	}
	link := filepath.Join(r.dir, "link.yaml")
	must(t, os.Symlink(r.file, link))
	for _, file := range []string{r.file, link} {
		if out, _ := r.tells(cli.ExitOK, "plan", "--config", file); out != file+": 0 changes to generation 1 (now 10 connections)\n" {
			t.Errorf("of what is in force it says %q", out)
		}
	}
	r.end(cli.ExitOK)
	must(t, os.WriteFile(planned, []byte(text), 0o644))
	out, complaint := r.tells(cli.ExitError, "plan", "--config", planned)
	if !strings.HasPrefix(out, "penstock run "+planned+" would begin with:\n  ") || !strings.Contains(out, "  listener c added\n") ||
		complaint != "penstock: unix:"+filepath.Join(r.dir, "admin.sock")+": no process runs there\n" {
		t.Errorf("where nothing runs it says %q %q", out, complaint)
	}
}

// TestPlanOfDrains: a plan contains the time at which draining connections are reset, by the
// next configuration; of a removed upstream, by the present one.
func TestPlanOfDrains(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	says := func(listener, upstreams string) {
		r.writeText(fmt.Sprintf("admin: {bind: \"unix:%s/admin.sock\"}\nlisteners: [{name: a, bind: %q, upstream: up}]\nupstreams:\n%s", r.dir, listener, upstreams))
	}
	const one, other = "127.0.0.1:2000", "127.0.0.1:2001"
	const two = "  - {name: up, endpoints: [\"127.0.0.1:1\", \"127.0.0.1:2\"]}\n"
	const named = "  - {name: up, endpoints: [{name: e, address: \"127.0.0.1:1\"}]}\n"
	first := func(keys, of string) string {
		return "  - {name: up, endpoints: [{address: \"127.0.0.1:1\", " + of + "}, \"127.0.0.1:2\"], " + keys + "}\n"
	}
	up := func(keys string) string { return "  - {name: up, endpoints: [\"127.0.0.1:2\"], " + keys + "}\n" }
	for _, c := range []struct{ before, at, after, want string }{
		{two, one, up("on_removed: drain"), "removed\n    3 connections drain, and are reset after 5m\n"},
		{two, one, up("drain_timeout: 90s"), "removed\n    3 connections drain, and are reset after 1m30s\n"},
		{two, one, up("drain_timeout: 0"), "removed\n    3 connections are reset at once\n"},
		{two, one, up("on_removed: reset"), "removed\n    3 connections are reset at once\n"},
		{two, one, up("on_removed: keep"), "removed\n    3 connections go on\n"},
		{two, one, up("drain_timeout: 90s"), "drain_timeout: 5m → 1m30s\n    3 connections go on\n"},
		{two, one, up("on_removed: keep"), "on_removed: drain → keep\n    6 connections go on\n"},
		{two, one, first("drain_timeout: 2s", "state: drain"), "drain_timeout: 5m → 2s\n    3 connections go on\n  endpoint up/127.0.0.1:1 changed: state: ready → drain\n    3 connections drain, and are reset after 2s\n"},
		{two, one, first("on_removed: keep", "state: drain"), "state: ready → drain\n    3 connections drain, and are reset after 5m\n"},
		{two, one, first("drain_timeout: 0", "state: drain"), "state: ready → drain\n    3 connections are reset at once\n"},
		{two, one, first("on_removed: reset", "state: maint"), "state: ready → maint\n    3 connections go on\n"},
		{first("on_removed: reset", "state: drain"), one, two, "state: drain → ready\n    3 connections go on\n"},
		{two, one, first("on_removed: reset", "weight: 0"), "weight: 1 → 0\n    3 connections go on\n"},
		{two, one, first("on_unhealthy: reset", "weight: 1"), "on_unhealthy: keep → reset (from the next time an endpoint becomes unhealthy: penstock sessions end --now --upstream up --endpoint NAME ends sessions now)\n    6 connections go on\n"},
		{named, one, strings.Replace(named, "127.0.0.1:1", "127.0.0.1:3", 1), "endpoint up/e (127.0.0.1:1) removed\n    3 connections drain, and are reset after 5m\n"},
		{two + "  - {name: gone, drain_timeout: 7s, endpoints: [\"127.0.0.1:3\"]}\n", one, two, "upstream gone removed\n    3 connections drain, and are reset after 7s\n"},
		{two, one, "  - {name: up, discover: {file: {path: list.yaml}}, drain_timeout: 90s}\n", "endpoint up/127.0.0.1:1 removed\n    3 connections stay if their endpoints are still listed; otherwise they drain, and are reset after 1m30s\n"},
		{two, one, "  - {name: up, discover: {file: {path: list.yaml}}, on_removed: reset}\n", "    6 connections stay if their endpoints are still listed; otherwise they are reset at once\n"},
		{two, other, up("drain_timeout: 90s"), "[127.0.0.1:2001]\n    5 connections drain, and are reset after 1m30s\n"},
		{two, other, up("drain_timeout: 0"), "[127.0.0.1:2001]\n    5 connections are reset at once\n"},
		{two, other, up("fallback: {upstream: more}") + "  - {name: more, drain_timeout: 2h, endpoints: [\"127.0.0.1:3\"]}\n", "[127.0.0.1:2001]\n    5 connections drain, and are reset after 2h\n"},
	} {
		says(one, c.before)
		r.tells(cli.ExitOK, "reload", "--config", r.file)
		says(c.at, c.after)
		if out, _ := r.tells(cli.ExitOK, "plan", "--config", r.file); !strings.Contains(out, c.want) {
			t.Errorf("from %s to %s: %q, want %q", c.before, c.after, out, c.want)
		}
	}
}

// TestPlanOfAddresses: if a listener loses one of its addresses, the plan contains the number
// of its connections; an address that another one contains stays.
func TestPlanOfAddresses(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	listens := func(binds string) {
		r.writeText(fmt.Sprintf("admin: {bind: \"unix:%s/admin.sock\"}\nlisteners: [{name: a, bind: [%s], upstream: up}]\nupstreams: [{name: up, endpoints: [\"127.0.0.1:1\"]}]\n", r.dir, binds))
	}
	const two = `"127.0.0.1:2000", "unix:/a?mode=0600"`
	for _, c := range []struct{ before, after, want string }{
		{two, `"127.0.0.1:2000"`, "    at unix:/a?mode=0600: 3 connections drain, and are reset after 5m\n    2 connections go on\n"},
		{two, `"unix:/./a"`, "    at 127.0.0.1:2000: 2 connections drain, and are reset after 5m\n    3 connections go on\n"},
		{two, `":2000", "unix:/a"`, "    5 connections go on\n"},
		{`"[::1]:2000"`, `"[::]:2000"`, "    5 connections go on\n"},
		{two, `"[::]:2000", "unix:/a"`, "    at 127.0.0.1:2000: 2 connections drain, and are reset after 5m\n    3 connections go on\n"},
		{two, `":9"`, "    at 127.0.0.1:2000: 2 connections drain, and are reset after 5m\n    at unix:/a?mode=0600: 3 connections drain, and are reset after 5m\n"},
		{`"127.0.0.1:2000", ":3", "systemd:x", ":0"`, `"127.0.0.1:2000", "systemd:x", ":0"`, "    at :3: 2 connections drain, and are reset after 5m\n    3 connections go on\n"},
		{`":2000"`, `"10.0.0.1:2000"`, "    5 connections go on\n"},
		{`"[::1]:2000"`, `"0.0.0.0:2000"`, "    5 connections drain, and are reset after 5m\n"},
		{`":2000"`, `"10.0.0.1:2001"`, "    5 connections drain, and are reset after 5m\n"},
	} {
		listens(c.before)
		r.tells(cli.ExitOK, "reload", "--config", r.file)
		listens(c.after)
		out, _ := r.tells(cli.ExitOK, "plan", "--config", r.file)
		if _, fates, _ := strings.Cut(out, "→ "); !strings.HasSuffix(fates, "]\n"+c.want) {
			t.Errorf("from %s to %s: %q, want %q", c.before, c.after, out, c.want)
		}
	}
}

// TestPlanTellsNothingOfOtherFiles: the process may have permission to read files that the
// caller has not.
func TestPlanTellsNothingOfOtherFiles(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	secret := filepath.Join(r.dir, "secret")
	must(t, os.WriteFile(secret, []byte("password: hunter2\n"), 0o600))
	p := &daemon{daemonConfig: daemonConfig{source: newFileSource(r.file, os.LookupEnv)}, env: os.LookupEnv, looks: make(chan struct{}, 1)}
	if _, err := p.Plan(t.Context(), secret, false); !errors.Is(err, admin.ErrForbidden) || !strings.Contains(err.Error(), "penstock check "+secret) {
		t.Errorf("to those who may not have it read it says %v", err)
	}
	_, err := p.Plan(t.Context(), secret, true)
	if !errors.Is(err, admin.ErrInvalid) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "password") {
		t.Errorf("it says %v", err)
	}
}

func TestWatchReloads(t *testing.T) {
	t.Parallel()

	r := startRun(t, []string{"--watch"}, "a")
	r.write("a", "b")
	r.says(`"msg":"configuration in force","generation":2,"by":"watch"`)
	r.has("a b")
	r.writeText("listeners: 1\n")
	r.says(`"msg":"the reload was refused, nothing was changed","by":"watch"`)
	// Included files are watched as well, and so are new ones.
	sub := filepath.Join(r.dir, "conf.d")
	must(t, os.Mkdir(sub, 0o755))
	r.writeText("include: [\"conf.d/*.yaml\"]\n" + r.text("admin.sock", "a"))
	r.says(`"msg":"configuration in force","generation":3,"by":"watch"`)
	r.has("a")
	one := filepath.Join(sub, "one.yaml")
	must(t, os.WriteFile(one, []byte("listeners: [{name: one, bind: \"127.0.0.1:3000\", upstream: up}]\n"), 0o644))
	r.says(`"msg":"configuration in force","generation":4,"by":"watch"`)
	r.has("a one")
	must(t, os.Remove(one))
	r.says(`"msg":"configuration in force","generation":5,"by":"watch","changes":"1 listener removed"`)
	r.has("a")
}

// TestRolledBackFileIsNotReadAgain by itself, even if the rollback changes the set of files.
func TestRolledBackFileIsNotReadAgain(t *testing.T) {
	t.Parallel()

	r := startRun(t, []string{"--watch"}, "a")
	must(t, os.Mkdir(filepath.Join(r.dir, "conf.d"), 0o755))
	r.writeText("include: [\"conf.d/*.yaml\"]\n" + r.text("admin.sock", "b"))
	r.says(`"generation":2,"by":"watch"`)
	r.tells(cli.ExitOK, "rollback", "--config", r.file)
	r.has("a")
	r.writeText(r.text("admin.sock", "c")) // the next event
	r.says(`"generation":3,"by":"watch"`)
	r.has("c")
}

// TestRollbackWithBadFiles: files of the admin address and of the metrics that are bad at the moment of a rollback do not stop it.
func TestRollbackWithBadFiles(t *testing.T) {
	t.Parallel()

	r := newRun(t, t.TempDir(), "a")
	cert, key := certificate.New(t, "a.test")
	for name, text := range map[string]string{"c": cert, "k": key, "ca": cert, "token": "0123456789abcdef"} {
		must(t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
	}
	admin, metrics := sockets.Port(t), sockets.Port(t)
	secured := func(listener string) string {
		_, rest, _ := strings.Cut(r.text("", listener), "\n")
		return fmt.Sprintf("admin: {bind: %q, change_token: 'file:token', tls: {cert: c, key: k, client_ca: ca}}\nmetrics: {bind: %q, allow: ['127.0.0.0/8'], tls: {cert: c, key: k}}\n",
			"127.0.0.1:"+admin, "127.0.0.1:"+metrics) + rest
	}
	r.writeText(secured("a"))
	go r.run([]string{"run", "--config", r.file, "--log", "json"})
	r.says("starting")
	t.Cleanup(func() { r.end(cli.ExitOK) })
	r.writeText(secured("b"))
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2s")
	for _, name := range []string{"c", "k", "ca"} {
		must(t, os.WriteFile(filepath.Join(r.dir, name), []byte("bad"), 0o600))
	}
	r.says(`"msg":"configuration rolled back"`)
	r.has("a")
}

// TestRolledBackChangeOfAnEditedFile: the status tells of a change that was rolled back as long as the file has a part of it,
// whatever else is edited, or cannot be used.
func TestRolledBackChangeOfAnEditedFile(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	r.write("a", "b", "c")
	r.tells(cli.ExitOK, "reload", r.file)
	r.tells(cli.ExitOK, "rollback", r.file)
	for _, file := range []struct {
		text string
		told bool
	}{{r.text("admin.sock", "a", "b", "d"), true}, {"listeners: 1\n", true}, {r.text("admin.sock", "a", "d"), false}} {
		r.writeText(file.text)
		if out, _ := r.tells(cli.ExitOK, "status", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock")); strings.Contains(out, "generation 2 was rolled back") != file.told {
			t.Errorf("with %q the status is %q", file.text, out)
		}
	}
}

// TestRolledBackTokenStaysRevoked: a rollback uses the token that the file has now.
func TestRolledBackTokenStaysRevoked(t *testing.T) {
	t.Parallel()

	r, at := newRun(t, t.TempDir(), "a"), "127.0.0.1:"+sockets.Port(t)
	token, old := filepath.Join(r.dir, "token"), filepath.Join(r.dir, "old")
	must(t, errors.Join(os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600), os.WriteFile(old, []byte("0123456789abcdef\n"), 0o600)))
	text := r.text("admin.sock", "a")
	_, rest, _ := strings.Cut(text, "\n")
	r.writeText(fmt.Sprintf("admin: {bind: %q, change_token: 'file:token'}\n", at) + rest)
	go r.run([]string{"run", "--config", r.file, "--log", "json"})
	r.says("starting")
	t.Cleanup(func() { r.end(cli.ExitOK) })
	must(t, os.WriteFile(token, []byte("fedcba9876543210\n"), 0o600))
	r.hangups <- syscall.SIGHUP
	r.says(`"generation":2`)
	r.tells(cli.ExitOK, "rollback", "--config", r.file)
	r.tells(cli.ExitOK, "status", "--config", r.file)
	r.tells(cli.ExitError, "status", "--admin", at, "--token-file", old)
}

// TestWatchWaitsForAConfirmation: a file that is saved while a change waits to be confirmed is read again once none waits.
func TestWatchWaitsForAConfirmation(t *testing.T) {
	t.Parallel()

	for _, decides := range []string{"confirm", "rollback"} {
		t.Run(decides, func(t *testing.T) {
			t.Parallel()
			r := startRun(t, []string{"--watch"}, "a")
			generation := 1
			for pending := false; !pending; { // unless watch has applied the file first
				generation++
				r.write(fmt.Sprintf("a%d", generation))
				out, _ := r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "1h")
				pending = strings.Contains(out, "or it is rolled back")
			}
			r.write("b")
			r.says(`"msg":"the reload was refused, nothing was changed","by":"watch"`)
			r.tells(cli.ExitOK, decides, "--config", r.file)
			r.says(fmt.Sprintf(`"generation":%d,"by":"watch"`, generation+1))
			r.has("b")
		})
	}
}

// TestFileThatChangesWhileItIsRead: the status has the problem of a file that was changed while the start or a reload has read it.
func TestFileThatChangesWhileItIsRead(t *testing.T) {
	t.Parallel()

	for name, at := range map[string]int{"the start": 1, "a reload": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRun(t, t.TempDir(), "a")
			text := strings.Replace(r.text("admin.sock", "a"), "name: a", "name: \"${LISTENER}\"", 1)
			r.writeText(text)
			looked := 0
			r.getenv = func(name string) string {
				if name != "LISTENER" {
					return os.Getenv(name)
				}
				if looked++; looked == at {
					r.writeText("# another program's\nlisteners: 1\n")
				}
				return fmt.Sprint("l", looked)
			}
			go r.run([]string{"run", "--config", r.file, "--log", "json"})
			t.Cleanup(func() { r.end(cli.ExitOK) })
			r.says("starting")
			admin := "unix:" + filepath.Join(r.dir, "admin.sock")
			if at > 1 {
				r.tells(cli.ExitOK, "reload", "--admin", admin)
			}
			if out, _ := r.tells(cli.ExitOK, "status", "--problems", "--admin", admin); !strings.Contains(out, "the next start or reload will fail: "+r.file+" has 1 problem: ") {
				t.Errorf("it says %q", out)
			}
		})
	}
}

// TestServiceManagerIsTold that it is ready, reloads, and stops.
func TestServiceManagerIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	r := startRun(t, nil, "a")
	next := func(want ...string) {
		t.Helper()
		b := make([]byte, 4096)
		c.SetReadDeadline(time.Now().Add(condition.Patience))
		n, err := c.Read(b)
		for _, w := range want {
			if err != nil || !strings.Contains(string(b[:n]), w) {
				t.Errorf("told %q, %v, want %q", b[:n], err, want)
			}
		}
	}
	next("READY=1", "STATUS=generation 1 of "+r.file)
	r.write("b")
	r.hangups <- syscall.SIGHUP
	next("RELOADING=1", "MONOTONIC_USEC=")
	next("READY=1", "STATUS=generation 2 of "+r.file+"\n")
	r.writeText("listeners: [")
	r.hangups <- syscall.SIGHUP
	next("RELOADING=1")
	next("READY=1", "STATUS=generation 2 of "+r.file+" is in force; the reload at ", " was refused: "+r.file+":")
	r.write("c")
	r.hangups <- syscall.SIGHUP
	next("RELOADING=1")
	next("READY=1", "STATUS=generation 3 of "+r.file+"\n")
	r.write("d")
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2m")
	next("RELOADING=1")
	next("READY=1", "STATUS=generation 4 of "+r.file+"\n")
	r.tells(cli.ExitError, "reload", "--config", r.file)
	next("RELOADING=1")
	next("READY=1", " was refused: generation 4 waits to be confirmed")
	r.tells(cli.ExitOK, "confirm", "--config", r.file)
	next("STATUS=generation 4 of " + r.file) // and no refusal any more
	r.end(cli.ExitOK)
	next("STOPPING=1")
}

// TestAdminWhileDraining: a draining process reports that, and changes nothing, until a
// successor has its admin socket; a second signal cuts.
func TestAdminWhileDraining(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "a")
	r.balancer.drains = make(chan struct{}) // never closed
	r.write("a", "c")
	r.tells(cli.ExitOK, "reload", "--config", r.file, "--confirm", "2m")
	r.stops <- syscall.SIGTERM
	condition.Await(t, "it drains", func() bool {
		return r.balancer.Status().State == admin.Draining
	})
	if out, _ := r.tells(cli.ExitWarnings, "status", "--config", r.file, "--exit-code"); !strings.HasPrefix(out, "WARNING  the process drains: ") || strings.Contains(out, "WARNING  generation") {
		t.Errorf("it says %q", out)
	}
	r.says(`"msg":"configuration stays unconfirmed","generation":2`)
	for _, args := range [][]string{{"status"}, {"rollback", "--list"}} {
		if out, _ := r.tells(cli.ExitOK, append(args, "--config", r.file)...); strings.Contains(out, "waits to be") {
			t.Errorf("%s says %q", args, out)
		}
	}
	r.hangups <- syscall.SIGHUP
	r.says(`"msg":"the reload was refused, nothing was changed","by":"SIGHUP","error":"the process is ending"`)
	for _, args := range [][]string{{"reload"}, {"confirm"}, {"rollback"}} {
		if _, complaint := r.tells(cli.ExitError, append(args, "--config", r.file)...); !strings.Contains(complaint, "the process is ending") {
			t.Errorf("%s: %q", args, complaint)
		}
	}
	next := startRunIn(t, r.dir, nil, "b")
	if out, _ := r.tells(cli.ExitOK, "status", "--config", r.file, "--exit-code"); !strings.Contains(out, "serving") || !strings.Contains(out, "listener     b") {
		t.Errorf("the successor says %q", out)
	}
	next.end(cli.ExitOK)
	r.stops <- syscall.SIGTERM
	<-r.done
	if r.code != cli.ExitError {
		t.Errorf("exit code %d after a cut", r.code)
	}
	r.code = cli.ExitOK // for the cleanup
}

// TestStarting: while the listeners are being opened the admin socket answers that the process starts. A request waits for
// those that are opened soon.
func TestStarting(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	r := newRun(t, dir, "a")
	r.opens = make(chan struct{})
	go r.run([]string{"run", "--config", r.file, "--log", "json"})
	r.says("admin listens")
	for _, command := range []string{"status", "reload"} {
		if _, stderr := r.tells(1, command, "--admin", "unix:"+filepath.Join(dir, "admin.sock")); !strings.Contains(stderr, "the process is starting, and has not opened its listeners yet") {
			t.Errorf("%s: %q", command, stderr)
		}
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		r.tells(0, "status", "--admin", "unix:"+filepath.Join(dir, "admin.sock"))
	}()
	r.opens <- struct{}{}
	r.says("starting")
	<-answered
	r.end(cli.ExitOK)
}

func (r *runRig) scrape() string {
	r.t.Helper()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", filepath.Join(r.dir, "admin.sock"))
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://localhost/metrics")
	must(r.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s, %v: %s", response.Status, err, body)
	}
	return string(body)
}

// TestReloadsAreMeasured: reloads are counted by their results, with the state of the last one.
func TestReloadsAreMeasured(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	measured := func(lines ...string) {
		t.Helper()
		text := r.scrape()
		for _, line := range lines {
			if !strings.Contains(text, "\npenstock_config_"+line+"\n") {
				t.Errorf("no %s in\n%s", line, regexp.MustCompile("(?m)^penstock_config_.*").FindAllString(text, -1))
			}
		}
	}
	measured("generation 1", `reloads_total{result="success"} 0`, "last_reload_successful 1", "unconfirmed 0")
	r.write("one", "two")
	r.tells(0, "reload", "--config", r.file)
	measured("generation 2", `reloads_total{result="success"} 1`, "last_reload_successful 1")
	r.writeText("listeners: [")
	r.tells(1, "reload", "--admin", "unix:"+filepath.Join(r.dir, "admin.sock"))
	measured("generation 2", `reloads_total{result="refused"} 1`, "last_reload_successful 0")
	r.write("one")
	r.tells(0, "reload", "--config", r.file, "--confirm", "5m")
	measured("unconfirmed 1", "last_reload_successful 1", `reloads_total{result="success"} 2`)
	r.tells(0, "rollback", "--config", r.file)
	measured("generation 2", "unconfirmed 0", `reloads_total{result="rolled_back"} 1`)
}

// TestFileBesideTheConfiguration: the file is compared with the running configuration, and never said to be the
// same before that.
func TestFileBesideTheConfiguration(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	state := func() string {
		m := regexp.MustCompile(`penstock_config_file_state\{state="([a-z]+)"\} 1\n`).FindAllStringSubmatch(r.scrape(), -1)
		if len(m) != 1 {
			t.Fatalf("%q", m)
		}
		return m[0][1]
	}
	if got := state(); got != "unknown" && got != "same" {
		t.Errorf("at first: %s", got)
	}
	condition.Await(t, "the file is the same", func() bool { return state() == "same" })
}

// TestAddressOfTheMetrics: it follows the configuration, a reload that cannot have its address changes nothing,
// and it ends with the process's drain.
func TestAddressOfTheMetrics(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		return l.Addr().String()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	with := func(at string) {
		t.Helper()
		r.writeText(r.text("admin.sock", "one") + "metrics: {bind: \"" + at + "\", allow: [127.0.0.0/8]}\n")
	}
	get := func(at string) int {
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := (&http.Client{Transport: transport}).Get("http://" + at + "/metrics")
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	at := free()
	with(at)
	if out, _ := r.tells(0, "reload", "--config", r.file); !strings.Contains(out, "metrics added") {
		t.Errorf("got %q", out)
	}
	if code := get(at); code != 200 {
		t.Errorf("got %d", code)
	}
	with(taken.Addr().String())
	if _, text := r.tells(1, "reload", "--config", r.file); !strings.Contains(text, "address already in use") {
		t.Errorf("got %q", text)
	}
	if code := get(at); code != 200 {
		t.Errorf("after a reload that failed: %d", code)
	}
	r.write("one")
	r.tells(0, "reload", "--config", r.file)
	if code := get(at); code != 0 {
		t.Errorf("without an address: %d", code)
	}
}
