package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

const fontFolder = "/usr/share/fonts/truetype/liberation"

// fonts has the browser use one family, whatever the machine has.
const fonts = `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<dir>` + fontFolder + `</dir><cachedir>%s</cachedir>
<match target="pattern"><edit name="family" mode="assign" binding="strong"><string>Liberation Sans</string></edit></match>
</fontconfig>`

// browsing is which tests run once alone, see [software.Long].
const browsing = "a browser shows the page"

// browsers bounds those that run at the same time. Each is busy while it starts and paints.
var browsers = make(chan struct{}, 2)

// A browser is a Chromium with one page. Its methods are called by the test's goroutine.
type browser struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // messages of the console, exceptions, violations of the policy
}

// startBrowser starts a browser for a test. The test fails if the page logs an error or violates its policy.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	software.Long(t, browsing)
	browsers <- struct{}{}
	t.Cleanup(func() { <-browsers })
	program := software.Need(t, "chromium-headless-shell", "chromium-headless-shell")
	dir := t.TempDir()
	config := filepath.Join(dir, "fonts.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, fonts, filepath.Join(dir, "fonts")), 0o600))
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.DisableGPU,
		chromedp.NoSandbox /* the page is ours, and not every user may make one */, chromedp.Flag("disable-quic", true), chromedp.Flag("no-first-run", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("font-render-hinting", "none"), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Env("FONTCONFIG_FILE="+config, "TZ=UTC"),
	)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	b := &browser{TB: t, ctx: ctx}
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(ctx, condition.Patience)
		defer cancel()
		_ = chromedp.Cancel(closing) // it may have ended
		end()
		stop()
		for _, p := range b.complaints() {
			t.Errorf("the page: %s", p)
		}
	})
	must(t, chromedp.Listen(ctx, b.note))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	must(t, err)
	_, err = chromedp.Call(ctx, runtime.Enable, cdp.Empty{})
	must(t, err)
	b.before(`document.addEventListener("securitypolicyviolation", (e) => console.error("policy:", e.violatedDirective, e.blockedURI, e.sourceFile, e.lineNumber))`)
	return b
}

// before has a script run before those of each page.
func (b *browser) before(script string) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	must(b, err)
}

// note notes an event of the browser that a good page does not cause.
func (b *browser) note(event any) {
	text := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		text = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			text += string(a.Value) + a.Description + " "
		}
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, strings.TrimSpace(text))
}

// complaints returns the noted events, and forgets them.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.problems
	b.problems = nil
	return list
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, condition.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("the browser: %v", err)
	}
}

// eval returns the value of an expression on the page, of its promise if it is one.
func eval[T any](b *browser, expression string) T {
	b.Helper()
	v, err := tryEval[T](b, expression)
	if err != nil {
		b.Fatalf("the browser: %s: %v", expression, err)
	}
	return v
}

func tryEval[T any](b *browser, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, condition.Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

func (b *browser) until(what, expression string) {
	b.Helper()
	var last error
	seen := func() (yes bool) {
		yes, last = tryEval[bool](b, expression) // an error: another page is being opened
		return yes
	}
	if !condition.Eventually(seen) {
		b.Fatalf("not seen on the page: %s (%s, %v)", what, expression, last)
	}
}

// press clicks an element. A button whose action is not over lets clicks through to nothing.
func (b *browser) press(id string) {
	b.Helper()
	b.until(id+" is at rest", fmt.Sprintf(`(document.getElementById(%q)?.getAttribute("aria-busy") ?? "false") === "false"`, id))
	b.do(chromedp.Click(chromedp.ID(id)))
}

// openPage starts a browser, opens the page of a server that ends later, and waits for the first event.
func openPage(t testing.TB, url string) *browser {
	t.Helper()
	b := startBrowser(t)
	b.size(1440, 900)
	b.open(url)
	return b
}

// open opens an address, and waits for the first event.
func (b *browser) open(url string) {
	b.Helper()
	b.do(chromedp.Navigate(url))
	b.until("an event", `document.documentElement?.dataset.event > 0`)
}

func (b *browser) size(width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

func (b *browser) colours(dark bool) {
	b.Helper()
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	must(b, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within is how long a change may take to be seen: ten times its bound of a second.
const within = 10 * time.Second
