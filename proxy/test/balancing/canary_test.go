package balancing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/penstock/penstock/proxy/admin"
)

// A comparison is a part of what penstock mirror --json prints.
type comparison struct {
	Compared, Equal, Different, Unnamed int64
	Stopped                             map[string]int64
	Names                               []struct {
		Name                       string
		Compared, Equal, Different int64
	}
	Examples []struct{ Name string }
}

// mirror runs penstock mirror, and returns its exit code and its output.
func (p *penstock) mirror(args ...string) (code int, out string) {
	p.T.Helper()
	cmd := exec.Command(built, append([]string{"mirror", "--config", "penstock.yaml"}, args...)...)
	cmd.Dir = p.Dir
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		p.T.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// compared is the first comparison once all mirrors have ended.
func (p *penstock) compared() comparison {
	p.T.Helper()
	p.Until("all mirrors are over", func(s *admin.Status) bool { return s.Listeners[0].Mirrors.Running == 0 })
	return p.comparison()
}

func (p *penstock) comparison() comparison {
	p.T.Helper()
	code, out := p.mirror("--json")
	var all struct {
		Mirrors []struct{ Comparisons []comparison }
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 || len(all.Mirrors) != 1 || len(all.Mirrors[0].Comparisons) != 1 {
		p.T.Fatalf("exit code %d, %v: %s", code, err, out)
	}
	return all.Mirrors[0].Comparisons[0]
}

// passes runs penstock mirror with conditions, and checks its exit code.
func (p *penstock) passes(want int, conditions ...string) {
	p.T.Helper()
	var args []string
	for _, c := range conditions {
		args = append(args, "--fail-if", c)
	}
	if code, out := p.mirror(args...); code != want {
		p.T.Errorf("%q: exit code %d, want %d: %s", conditions, code, want, out)
	}
}

// cart is a service of gRPC. Add answers with the text that it was sent, and with version for the text version. List sends as
// many messages of a kilobyte as the length of its text.
func cart(t *testing.T, version string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	requests := new(atomic.Int64)
	mark := func(ctx context.Context) error {
		return grpc.SetHeader(ctx, metadata.Pairs("x-request-id", fmt.Sprint(version, requests.Add(1))))
	}
	// A client pings while it gets answers. A server of grpc-go that has sent none yet, as a shadow may, takes a third
	// ping for abuse, and closes the connection. A window given by hand ends the server's own pings: the shadow gets the answers
	// to the primary's, and reads a time that it may just write (grpc/grpc-go#9415).
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond, PermitWithoutStream: true}),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Cart", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Add", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			if in.Value == "version" {
				in.Value = version
			}
			if in.Value == "refuse" {
				return nil, grpcstatus.Error(codes.NotFound, "no such item")
			}
			return in, mark(ctx)
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "List", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); err != nil {
				return err
			}
			for range in.Value {
				if err := s.SendMsg(wrapperspb.String(strings.Repeat("item", 256))); err != nil {
					return err
				}
			}
			return nil
		}}},
	}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return ln.Addr().String()
}

// testCanaryOfGRPC has the traffic of clients of gRPC, many calls on a connection, compared with that of a second server: it is
// equal but for what a mask has. A value that differs is found, and named by its method.
func testCanaryOfGRPC(t *testing.T) {
	p := start(t, fmt.Sprintf(`
listeners: [{name: shop, bind: "127.0.0.1:0", upstream: shop, mirror: {upstream: next, patience: 30s, compare: {framing: grpc, redact: false, mask: [{field: grpc.x-request-id}]}}}]
upstreams:
  - {name: shop, endpoints: [%q]}
  - {name: next, endpoints: [%q], health_check: off}`, cart(t, "1"), cart(t, "2")))
	addr, _, _ := p.at("shop")
	client, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer client.Close()
	add := func(text string) error {
		out := new(wrapperspb.StringValue)
		err := client.Invoke(t.Context(), "/shop.Cart/Add", wrapperspb.String(text), out)
		if err == nil && text != "version" && out.Value != text {
			err = fmt.Errorf("%q was answered to %q", out.Value, text)
		}
		return err
	}
	list := func(n int) error {
		s, err := client.NewStream(t.Context(), &grpc.StreamDesc{StreamName: "List", ServerStreams: true}, "/shop.Cart/List")
		if err != nil {
			return err
		}
		if err := errors.Join(s.SendMsg(wrapperspb.String(strings.Repeat("x", n))), s.CloseSend()); err != nil {
			return err
		}
		for range n {
			if err := s.RecvMsg(new(wrapperspb.StringValue)); err != nil {
				return err
			}
		}
		return nil
	}
	comparison := func(n int64) (c comparison) {
		p.Until(fmt.Sprintf("%d answers were compared", n), func(*admin.Status) bool {
			c = p.comparison()
			return c.Compared == n
		})
		return c
	}
	const callers, each, batch = 8, 100, 5
	for from := 0; from <= each; from += batch { // a session whose shadow lags by some fifty calls is no longer compared
		ended := make(chan error)
		for i := range callers {
			go func() {
				var err error
				for j := from; j < from+batch && from < each && err == nil; j++ {
					err = add(strings.Repeat("text", j*i))
				}
				if from == each {
					err = list(200)
				}
				ended <- err
			}()
		}
		var failed error
		for range callers {
			failed = errors.Join(failed, <-ended)
		}
		must(t, failed)
		comparison(int64(callers * min(from+batch, each+1)))
	}
	if err := add("refuse"); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("%v", err)
	}
	c := comparison(callers*(each+1) + 1)
	if c.Different != 0 || len(c.Names) != 2 || c.Names[0].Name != "/shop.Cart/Add" || c.Names[0].Equal != callers*each+1 || c.Names[1].Equal != callers || c.Unnamed != 0 || len(c.Stopped) != 0 {
		t.Errorf("%+v", c)
	}
	p.passes(0, "different>1%", "compared<800", "slower>10s", "stopped>0")
	must(t, add("version"))
	c = comparison(callers*(each+1) + 2)
	if c.Different != 1 || len(c.Examples) != 1 || c.Examples[0].Name != "/shop.Cart/Add" {
		t.Errorf("%+v", c)
	}
	p.passes(3, "different>=1")
	must(t, client.Close())
	if c := p.compared(); c.Different != 1 || len(c.Stopped) != 0 {
		t.Errorf("%+v", c)
	}
	p.stop()
}
