package tlsterm_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

func appendFile(t testing.TB, to, from string) {
	t.Helper()
	a, err := os.ReadFile(to)
	must(t, err)
	b, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, append(a, b...), 0o600))
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// told collects the reports of changed files.
type told struct {
	mu   sync.Mutex
	list []tlsterm.Change
}

func (l *told) tell(c tlsterm.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, c)
}

// count returns how many changes took effect, and how many did not. A certificate that
// waits long for its key, because the test does, counts as one that did not.
func (l *told) count() (good, bad int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.list {
		if c.Err != nil {
			bad++
		} else {
			good++
		}
	}
	return good, bad
}

func inPlace(t testing.TB, path string, text []byte) { must(t, os.WriteFile(path, text, 0o600)) }

func renamed(t testing.TB, path string, text []byte) {
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
}

// served returns the serial number of the certificate that a server shows.
func served(t testing.TB, s *tlsterm.Server, a *authority) string {
	t.Helper()
	seen, cerr, serr := meet(t, s, &tls.Config{ServerName: "a.test", RootCAs: a.pool()})
	must(t, errors.Join(cerr, serr))
	return seen.PeerCertificates[0].SerialNumber.String()
}

// TestSwap: however many use a pair, each shows the new one, and it is reported once.
func TestSwap(t *testing.T) {
	for name, change := range map[string]func(testing.TB, string, []byte){"in place": inPlace, "renamed": renamed} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t, "test")
			p := a.pair("a.test")
			var log told
			f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond, Report: log.tell})
			s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f})
			second := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p, p}, Files: f})
			cert, key := a.sign(newKey(t), "a.test")
			change(t, p.Cert, cert)
			change(t, p.Key, key)
			want := serialOf(t, p.Cert)
			condition.Await(t, "the new certificate is shown", func() bool {
				return served(t, s, a) == want && served(t, second, a) == want
			})
			if good, _ := log.count(); good != 1 {
				t.Errorf("%d changes reported, want one", good)
			}
		})
	}
}

// TestOpenedAfterAChange: who opens files that have just changed has their present contents from the beginning, and so have
// earlier users soon.
func TestOpenedAfterAChange(t *testing.T) {
	t.Parallel()

	a := newAuthority(t, "test")
	p, other := a.pair("a.test"), a.pair("b.test")
	reports, hold := make(chan struct{}, 4), make(chan struct{})
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond, Report: func(tlsterm.Change) {
		reports <- struct{}{}
		<-hold // no further change comes into force for present users
	}})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	first := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f})
	newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{other}, Files: f})
	must(t, copyFile(p.Cert, other.Cert)) // which does not match its key
	<-reports
	cert, key := a.sign(newKey(t), "a.test")
	inPlace(t, p.Cert, cert)
	inPlace(t, p.Key, key)
	want := serialOf(t, p.Cert)
	if got := served(t, newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f}), a); got != want {
		t.Errorf("a server that begins after the change shows %s, want %s", got, want)
	}
	release()
	condition.Await(t, "the new certificate is shown by the earlier server", func() bool { return served(t, first, a) == want })
}

// TestEnded: the end of a certificate is told once, and again for the next certificate.
func TestEnded(t *testing.T) {
	t.Parallel()

	a := newAuthority(t, "test")
	p := a.pair("a.test")
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f})
	told := 0
	at := func(now time.Time) int {
		f.Ended(now, func(paths []string, at time.Time) {
			if told++; !slices.Equal(paths, []string{p.Cert, p.Key}) || !at.Equal(s.Lifetimes()[0].Ends) {
				t.Errorf("%v, %v", paths, at)
			}
		})
		return told
	}
	end := s.Lifetimes()[0].Ends
	for i, want := range []int{0, 1, 1} {
		if got := at(end.Add(time.Duration(i) * time.Second)); got != want {
			t.Errorf("%d s after the end it was told %d times, want %d", i, got, want)
		}
	}
	cert, key := a.sign(newKey(t), "a.test")
	renamed(t, p.Cert, cert)
	renamed(t, p.Key, key)
	want := serialOf(t, p.Cert)
	condition.Await(t, "the new certificate is shown", func() bool { return served(t, s, a) == want })
	condition.Await(t, "its end is told", func() bool { return at(end.Add(time.Hour)) == 2 })
}

// TestTouched: a file that was written again as it was is not reported.
func TestTouched(t *testing.T) {
	a := newAuthority(t, "test")
	p, other := a.pair("a.test"), a.pair("b.test")
	var log told
	f := newFiles(t, &tlsterm.FilesConfig{Settle: 10 * time.Millisecond, Report: log.tell})
	newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p, other}, Files: f})
	text, err := os.ReadFile(p.Cert)
	must(t, err)
	renamed(t, p.Cert, text)
	cert, key := a.sign(newKey(t), "b.test")
	renamed(t, other.Cert, cert)
	renamed(t, other.Key, key)
	condition.Await(t, "the other is reported", func() bool { good, _ := log.count(); return good > 0 })
	log.mu.Lock()
	defer log.mu.Unlock()
	for _, c := range log.list {
		if c.Paths[0] != other.Cert {
			t.Errorf("reported %v, which have not changed", c.Paths)
		}
	}
}

// TestBadFile: a bad file changes nothing and is reported once; the next good one is
// taken.
func TestBadFile(t *testing.T) {
	a := newAuthority(t, "test")
	p := a.pair("a.test")
	first := serialOf(t, p.Cert)
	var log told
	f := newFiles(t, &tlsterm.FilesConfig{Poll: 10 * time.Millisecond, Settle: 10 * time.Millisecond, Report: log.tell})
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f})

	cert, key := a.sign(newKey(t), "a.test")
	renamed(t, p.Cert, cert)
	condition.Await(t, "the key of another certificate is reported", func() bool { _, bad := log.count(); return bad == 1 })
	if got := served(t, s, a); got != first {
		t.Errorf("got certificate %s, want the one before, %s", got, first)
	}
	if l := s.Lifetimes()[0]; l.Refused == nil || !strings.Contains(l.Refused.Error(), "does not match") {
		t.Errorf("the files that were not taken: %v", l.Refused)
	}
	log.mu.Lock()
	if c := log.list[0]; !strings.Contains(c.Err.Error(), p.Cert) || !strings.Contains(c.Err.Error(), "does not match") || len(c.Paths) != 2 {
		t.Errorf("reported %v of %v", c.Err, c.Paths)
	}
	log.mu.Unlock()

	must(t, os.Remove(p.Key))
	condition.Await(t, "the missing key is reported", func() bool { _, bad := log.count(); return bad == 2 })
	renamed(t, p.Key, key)
	condition.Await(t, "the good pair is reported", func() bool { good, _ := log.count(); return good == 1 })
	if got, want := served(t, s, a), serialOf(t, p.Cert); got != want {
		t.Errorf("got certificate %s, want %s", got, want)
	}
	if _, bad := log.count(); bad != 2 {
		t.Errorf("%d reports of two bad contents", bad)
	}
	if l := s.Lifetimes()[0]; l.Refused != nil {
		t.Errorf("files that were taken: %v", l.Refused)
	}
}

// TestReload: a new user of files that others use gets their present contents or, as in a rollback while the files are bad,
// the ones in use.
func TestReload(t *testing.T) {
	a := newAuthority(t, "test")
	p := a.pair("a.test")
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: time.Hour}) // so it is not found otherwise
	cfg := tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f}
	before := newServer(t, cfg)
	first := served(t, before, a)
	cert, key := a.sign(newKey(t), "a.test")
	renamed(t, p.Cert, cert)
	if one, two := served(t, before, a), served(t, newServer(t, cfg), a); one != first || two != first {
		t.Errorf("with a certificate without its key they show %s and %s, want %s", one, two, first)
	}
	renamed(t, p.Key, key)
	after, want := newServer(t, cfg), serialOf(t, p.Cert)
	condition.Await(t, "both show the new certificate", func() bool { return served(t, after, a) == want && served(t, before, a) == want })
}

// TestClientCAFile: the accepted clients follow the file.
func TestClientCAFile(t *testing.T) {
	a, old, next := newAuthority(t, "test"), newAuthority(t, "old"), newAuthority(t, "next")
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond})
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test")}, ClientCA: old.file, Files: f})
	mine := next.pair("me")
	cert, err := tls.LoadX509KeyPair(mine.Cert, mine.Key)
	must(t, err)
	cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }}
	if _, _, err := meet(t, s, cfg); err == nil {
		t.Fatal("a client of an authority that is not trusted was accepted")
	}
	appendFile(t, old.file, next.file)
	condition.Await(t, "a client of the next authority is accepted", func() bool { _, _, err := meet(t, s, cfg); return err == nil })
}

// TestFollowsNobody: files that have no user any more are not followed.
func TestFollowsNobody(t *testing.T) {
	a := newAuthority(t, "test")
	f := newFiles(t, nil)
	cfg := tlsterm.Config{Certificates: []tlsterm.Pair{a.pair("a.test"), a.pair("b.test")}, ClientCA: a.file, Files: f}
	for range 3 {
		one, two := newServer(t, cfg), newServer(t, cfg)
		one.Close()
		if f.Sources() == 0 {
			t.Error("nothing is followed, and there is a server")
		}
		two.Close()
		two.Close()
	}
	if n := f.Sources(); n != 0 {
		t.Errorf("%d files and directories are followed without a user", n)
	}
	cfg.ClientCA = ""
	s := newServer(t, cfg)
	f.Close()
	f.Close()
	served(t, s, a)
}

// TestRotationUnderLoad exchanges a certificate again and again while clients come and
// go, and one stays: no handshake fails, and no connected client notices.
func TestRotationUnderLoad(t *testing.T) {
	const rotations, clients = 8, 4
	a := newAuthority(t, "test")
	p := a.pair("a.test")
	var log told
	f := newFiles(t, &tlsterm.FilesConfig{Poll: time.Hour, Settle: 10 * time.Millisecond, Report: log.tell})
	s := newServer(t, tlsterm.Config{Certificates: []tlsterm.Pair{p}, Files: f, Timeout: condition.Patience})
	addr := serve(t, s)
	cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8)}

	stays, err := tls.Dial("tcp", addr, cfg)
	must(t, err)
	defer stays.Close()
	var seen sync.Map // serials shown
	var handshakes atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	for n := range clients {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				own := cfg.Clone()
				if n%2 == 0 {
					own.ClientSessionCache = nil // the others resume
				}
				if err := once(addr, own, &seen); err != nil {
					t.Errorf("handshake %d: %v", handshakes.Load(), err)
					return
				}
				handshakes.Add(1)
			}
		})
	}
	for n := range rotations {
		cert, key := a.sign(newKey(t), "a.test")
		change := []func(testing.TB, string, []byte){inPlace, renamed}[n%2]
		change(t, p.Key, key)
		change(t, p.Cert, cert)
		want, before := serialOf(t, p.Cert), handshakes.Load()
		condition.Await(t, "clients see the next certificate", func() bool {
			_, ok := seen.Load(want)
			return ok && handshakes.Load() > before || t.Failed()
		})
		_, err := stays.Write([]byte("x"))
		must(t, err)
		_, err = io.ReadFull(stays, make([]byte, 1))
		must(t, err)
	}
	close(stop)
	group.Wait()
	if good, _ := log.count(); good != rotations {
		t.Errorf("%d changes reported, want %d", good, rotations)
	}
	if n := s.Stats().Failed.Total(); n != 0 {
		t.Errorf("%d handshakes failed", n)
	}
	t.Logf("%d handshakes, %d resumed, during %d rotations", s.Stats().Counts().Completed, s.Stats().Counts().Resumed, rotations)
}

// once connects, notes which certificate it was shown, and is answered.
func once(addr string, cfg *tls.Config, seen *sync.Map) error {
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	conn := tls.Client(raw, cfg)
	defer conn.Close()
	if err := raw.SetDeadline(time.Now().Add(condition.Patience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("ping")); err != nil {
		return err
	}
	if state := conn.ConnectionState(); !state.DidResume {
		seen.Store(state.PeerCertificates[0].SerialNumber.String(), true)
	}
	_, err = io.ReadFull(conn, make([]byte, 4))
	return err
}
