// Package handshake measures the cost of terminating TLS: new and resumed handshakes per second, the proxy's CPU
// for each, and how much later a message arrives than through the same proxy without TLS. It measures Penstock
// beside HAProxy. Both have the same client, which does the other half of each handshake.
package handshake

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// Setup is the setup of a comparison.
type Setup struct {
	rounds.Setup
	Program  contestant.Program
	Dir      string // directory for configurations; the caller removes it
	Binaries map[string]string
	// Sink has the name and the argument of the part that echoes.
	Sink [2]string

	Threads int           // HAProxy's threads
	Trial   time.Duration // length of a trial; a contestant has seven in a round
	Workers int           // number of clients at once
}

// pair is a contestant that terminates TLS and a contestant that does not.
type pair struct {
	sealed, plain *contestant.Contestant
	row           *Row
}

// comparison is a comparison in progress.
type comparison struct {
	Setup
	client *process.Child
	pairs  []*pair
}

// Measure compares the contestants. The first row is Penstock's. If it fails, or ctx ends, it returns the results
// so far together with the error. Everything that it has started ends with the group.
func Measure(ctx context.Context, s Setup) (*Report, error) {
	r := &Report{Rounds: s.Rounds, Trial: report.Number(s.Trial.Seconds()), Workers: s.Workers}
	c := &comparison{Setup: s}
	err := c.begin(ctx, r)
	if err == nil {
		err = c.trials(ctx)
	}
	for i := range r.Rows {
		r.Rows[i].sum(&r.Rows[0])
	}
	return r, err
}

func (c *comparison) trials(ctx context.Context) error {
	for round, i := range c.Turns(len(c.pairs)) {
		if err := c.round(ctx, c.pairs[i], round); err != nil {
			return err
		}
	}
	return nil
}

// begin starts all processes. A contestant that is not installed is left out.
func (c *comparison) begin(ctx context.Context, r *Report) error {
	setting := &contestant.Setting{Group: c.Group, Program: c.Program, Dir: c.Dir, Binaries: c.Binaries, Certificate: filepath.Join(c.Dir, "certificate.pem")}
	if err := writeCertificate(setting.Certificate); err != nil {
		return err
	}
	var at struct{ Address string }
	_, err := c.Group.Begin(ctx, c.Program.Spec("the sink", c.Program.Part, c.Sink[:]...), nil, &at)
	if err != nil {
		return contestant.Describe(err)
	}
	setting.Upstream = at.Address
	if c.client, err = c.Group.Start(c.Program.Spec("the client", c.Program.Part, PartClient)); err != nil {
		return err
	}
	forwarding := contestant.Forwarding(c.Threads)
	terminating := contestant.Terminating(c.Threads)
	r.Rows = make([]Row, len(terminating))
	for i, k := range terminating {
		row := &r.Rows[i]
		row.Contestant, row.About = k.Name, k.About
		if err := k.Available(ctx, setting); err != nil {
			row.Failed = err.Error()
			continue
		}
		p := &pair{row: row}
		if p.sealed, err = k.Start(ctx, setting); err != nil {
			return err
		}
		open := *setting
		open.Certificate = ""
		if p.plain, err = forwarding[i].Start(ctx, &open); err != nil {
			return err
		}
		c.pairs = append(c.pairs, p)
	}
	return context.Cause(ctx)
}

func (c *comparison) round(ctx context.Context, p *pair, number int) error {
	var r Round
	for _, t := range []struct {
		mode      mode
		to        *contestant.Contestant
		rate, cpu *report.Number
		into      func(*result)
	}{
		{fresh, p.sealed, &r.New, &r.NewCPU, func(x *result) { p.row.Agreed = x.Agreed }},
		{resumed, p.sealed, &r.Resumed, &r.ResumedCPU, func(x *result) {
			r.Share = report.Number(float64(x.Resumed) / float64(max(x.Done-int64(c.Workers), 1)))
		}},
		{plain, p.plain, &r.Plain, &r.PlainCPU, nil},
		{messages, p.sealed, new(report.Number), &r.MessagesCPU, func(x *result) {
			r.Message, r.MessageP99 = report.Number(x.P50.Seconds()), report.Number(x.P99.Seconds())
		}},
		{unsealed, p.plain, new(report.Number), &r.UnsealedCPU, func(x *result) { r.Unsealed = report.Number(x.P50.Seconds()) }},
		{many, p.sealed, &r.Many, &r.ManyCPU, func(x *result) { r.ManyP99 = report.Number(x.P99.Seconds()) }},
		{manyOpen, p.plain, &r.ManyOpen, &r.ManyOpenCPU, nil},
	} {
		x, cpu, err := c.trial(ctx, t.mode, t.to)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", p.row.Contestant, t.mode, err)
		}
		*t.rate = report.Number(float64(x.Done) / x.Elapsed.Seconds())
		*t.cpu = report.Number(cpu.Seconds() / float64(x.Done))
		if t.into != nil {
			t.into(x)
		}
	}
	r.Added = r.Message - r.Unsealed
	p.row.Rounds = append(p.row.Rounds, r)
	c.Notify(rounds.Progress{Round: number, Contestant: p.row.Contestant, Result: report.Count(float64(r.New)) + " new handshakes/s"})
	return nil
}

// trial runs one of the client's plans, and returns the result and the CPU that the contestant has used.
func (c *comparison) trial(ctx context.Context, m mode, to *contestant.Contestant) (*result, time.Duration, error) {
	workers := c.Workers
	switch m {
	case messages, unsealed:
		workers = 1
	case many, manyOpen:
		workers = manyConnections
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Trial+3*patience, fmt.Errorf("not over within %v", c.Trial+3*patience))
	defer cancel()
	task := plan{Mode: m, Address: to.Address, Workers: workers, Duration: c.Trial}
	if m.lasting() { // the handshakes must not count
		if x, err := c.ask(ctx, task); err != nil || !x.Ready {
			return nil, 0, cmp.Or(err, errNotReady)
		}
	}
	before, err := to.Usage()
	if err != nil {
		return nil, 0, err
	}
	x, err := c.ask(ctx, task)
	if err != nil {
		return nil, 0, err
	}
	after, err := to.Usage()
	switch {
	case err != nil:
		return nil, 0, err
	case x.Done == 0:
		return nil, 0, errors.New("nothing was done in time")
	}
	return x, after.Sub(before).CPU, nil
}

var errNotReady = errors.New("the client was not ready")

// ask sends the client a plan, and returns its answer.
func (c *comparison) ask(ctx context.Context, task plan) (*result, error) {
	if err := c.client.Send(task); err != nil {
		return nil, err
	}
	x := new(result)
	if err := c.client.Receive(ctx, x); err != nil {
		return nil, contestant.Describe(err)
	}
	if x.Error != "" {
		return nil, errors.New("the client failed: " + x.Error)
	}
	return x, nil
}

// writeCertificate writes a self-signed certificate and its key, ECDSA on P-256, to a file.
func writeCertificate(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: serverName}, DNSNames: []string{serverName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	return os.WriteFile(path, text, 0o600)
}
