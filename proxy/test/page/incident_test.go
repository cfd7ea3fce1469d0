package page

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/software"
)

const (
	visitors = 18
	noisy    = "127.0.9.9"
)

// TestIncident goes through docs/reload.md as a newcomer does: it finds the slow endpoint, takes it out, ends its
// sessions without a lost byte, denies a noisy source, and rolls a bad change back, each by the command of the page.
func TestIncident(t *testing.T) {
	full.Only(t, browsing)
	quick, slow, other := startNginx(t, ""), startNginx(t, "3r/s"), startNginx(t, "")
	web, _, _ := software.Addr(t)
	h := readHowto(t, map[string]string{
		`":8080"`: strconv.Quote(web), "10.0.0.11:80": quick.addr, "10.0.0.12:80": slow.addr, "10.0.0.13:80": other.addr, "203.0.113.9": noisy,
	})
	h.begin("penstock run penstock.yaml", nil, web)
	crowd := startCrowd(t, web)
	if !condition.Eventually(func() bool { return crowd.served() == visitors }) {
		t.Fatalf("%d of %d clients are served", crowd.served(), visitors)
	}

	n := crowd.at(slow.addr)
	h.findsSlow(slow.addr, n)
	b := h.seesSlow(slow.addr, n)
	h.types("penstock endpoint drain", regexp.QuoteMeta(slow.addr)+fmt.Sprintf(`: ready → drain; its %d sessions are reset`, n))
	b.until("the endpoint is out", fmt.Sprintf(`document.querySelector('#t-endpoints [data-key="shop/%s"]')?.dataset.level === "off"`, slow.addr))
	h.types("penstock sessions end --endpoint", fmt.Sprintf(`^%d sessions: %[1]d ended$`, n))
	crowd.check(slow)
	last := crowd.answers(slow.addr)
	if !condition.Eventually(func() bool { return crowd.at(slow.addr) == 0 }) {
		t.Errorf("%d clients are not served by others", crowd.at(slow.addr))
	}

	h.deniesNoisy(crowd)
	h.rollsBack(crowd)
	if len(h.commands) > 0 {
		t.Errorf("not typed: %q", h.commands)
	}
	crowd.stop()
	if more := crowd.answers(slow.addr) - last; more > 0 {
		t.Errorf("the drained endpoint has served %d more", more)
	}
	for _, n := range []*nginx{quick, slow, other} {
		crowd.check(n)
	}
}

// begin begins a command that goes on, and is interrupted at the end of the test. It waits until an address is served.
func (h *howto) begin(command string, stdout io.Writer, address string) {
	h.Helper()
	cmd := h.next(command)
	var log software.Output
	cmd.Stdout, cmd.Stderr = stdout, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(h, cmd.Start())
	h.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		late := time.AfterFunc(condition.Patience, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil || h.Failed() {
			h.Errorf("%s ended with %v\n%s", command, err, log.String())
		}
	})
	if address != "" && !condition.Eventually(func() bool { return accepts(address) }) {
		h.Fatalf("%s does not serve\n%s", command, log.String())
	}
}

// findsSlow: the commands name the slow endpoint, and no other one.
func (h *howto) findsSlow(slow string, sessions int) {
	h.Helper()
	at := regexp.QuoteMeta(slow)
	h.types("penstock top --once", `^shop +`+at+` +up +.* (\d{2,}ms|\d+\.\d+s|\ds) `, `^127\.0\.\d+\.\d+:\d+ +`+at+` +endpoint .* waited .* for the endpoint`)
	out := h.types("penstock why", `^endpoint +\d+ %`, `^127\.0\.\d+\.\d+:\d+ -> `+at+`  endpoint\n +waited .* for the endpoint`)
	most := regexp.MustCompile(`(?m)^endpoint (\S+) of shop: \d+ of (\d+) sessions, (\d+) % of that time$`).FindStringSubmatch(out)
	if most == nil || most[1] != slow || most[2] != strconv.Itoa(sessions) {
		h.Errorf("it names %q, want %s:\n%s", most, slow, out)
	}
}

// seesSlow: so does the page, of the sessions that their endpoint limits, and of those that run now.
func (h *howto) seesSlow(slow string, sessions int) *browser {
	h.Helper()
	r, w := io.Pipe()
	h.Cleanup(func() { r.Close() })
	h.begin("penstock page --no-browser", w, "")
	line, err := bufio.NewReader(r).ReadString('\n')
	must(h, err)
	b := openPage(h, strings.TrimSpace(line))
	named, advice := regexp.MustCompile(`running sessions: .* Endpoint `+regexp.QuoteMeta(slow)+` of shop: `), ""
	if !condition.Eventually(func() bool { advice = b.look(); return named.MatchString(advice) }) {
		h.Errorf("the page says %q", advice)
	}
	eval[bool](b, `(document.getElementById("sessions").scrollIntoView(), true)`)
	eval[bool](b, `(document.getElementById("f-verdict").value = "endpoint", document.getElementById("f-verdict").dispatchEvent(new Event("change")), true)`)
	b.until("its sessions", fmt.Sprintf(`(() => {
		const rows = [...document.querySelectorAll("#t-sessions .row")].filter((r) => !r.hidden);
		return rows.length === %d && rows.every((r) => r.querySelector(".c-endpoint").textContent === %q && r.querySelector(".c-verdict").textContent === "endpoint");
	})()`, sessions, slow))
	return b
}

// look presses the button Look now, and returns the answer.
func (b *browser) look() string {
	b.Helper()
	b.press("why")
	b.until("an answer", `document.getElementById("advice").textContent.includes("running sessions: ")`)
	return eval[string](b, `document.getElementById("advice").textContent`)
}

// deniesNoisy: a source that connects all the time is found, and refused for an hour. Others are not.
func (h *howto) deniesNoisy(c *crowd) {
	h.Helper()
	stop := repeat(h, func() { _ = c.ask(noisy) }) // it is refused in the end
	if !condition.Eventually(func() bool { return c.ask(noisy) == nil }) {
		h.Error("the noisy source is not served")
	}
	h.types("penstock sources --by rate", `^source .*\n`+regexp.QuoteMeta(noisy)+` `)
	h.types("penstock deny add", `^`+regexp.QuoteMeta(noisy)+` is denied until 20`)
	stop()
	if err := c.ask(noisy); err == nil {
		h.Error("it is served")
	}
	if err := c.ask("127.0.9.8"); err != nil {
		h.Errorf("another source is refused: %v", err)
	}
	h.types("penstock deny list", `^`+regexp.QuoteMeta(noisy)+` +all +20.* (1h0m0s|59m\d+s) `)
}

// rollsBack: a change that refuses everybody is in force, and taken back. What was done by hand stays.
func (h *howto) rollsBack(c *crowd) {
	h.Helper()
	h.types("sed -i")
	if text, err := os.ReadFile(filepath.Join(h.dir, "penstock.yaml")); err != nil || string(text) == h.file {
		h.Errorf("the file has not changed: %v", err)
	}
	h.types("penstock reload", `^generation 2 is in force: 1 change$`)
	if err := c.ask(""); err == nil {
		h.Error("the change is not bad")
	}
	h.types("penstock rollback", `generation 1`)
	if err := c.ask(""); err != nil {
		h.Errorf("after the rollback: %v", err)
	}
	if err := c.ask(noisy); err == nil {
		h.Error("the noisy source is served after the rollback")
	}
	h.types("penstock status", `by hand`)
}

func accepts(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}
