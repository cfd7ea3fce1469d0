package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/display"
)

// newLogger returns a logger of form "text" or "json" that writes one line for
// each record. The level is one that slog knows, in small letters.
func newLogger(w io.Writer, form, level string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err == nil {
		options.Level = l
	}
	w = display.NewWriter(w)
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logSessions logs a line for each client that is served.
func logSessions(ctx context.Context, log *slog.Logger, of server) {
	for s := range of.Sessions(ctx) {
		attrs := []any{"client", s.Client, "endpoint", s.Endpoint, "state", string(s.State), "age", s.Age.String()}
		if s.Idle >= 0 {
			attrs = append(attrs, "idle", s.Idle.String())
		}
		if s.Loop >= 0 {
			attrs = append(attrs, "loop", s.Loop)
		}
		log.Debug("session", append(attrs,
			slog.Group("client_to_endpoint", "spliced", s.ClientToEndpoint.Spliced, "copied", s.ClientToEndpoint.Copied),
			slog.Group("endpoint_to_client", "spliced", s.EndpointToClient.Spliced, "copied", s.EndpointToClient.Copied),
		)...)
	}
}

// writeSummary writes a summary: one JSON object on one line for "json",
// otherwise a few lines to read.
func writeSummary(w io.Writer, form string, s proxy.Summary) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(s)
	}
	if _, err := fmt.Fprintf(w, `connections         accepted %d, active %d, refused %d%s
client to endpoint  spliced %d bytes, copied %d bytes
endpoint to client  spliced %d bytes, copied %d bytes
lost                %d bytes
fallbacks           %s
pipes               made %d, reused %d, leased %d, idle %d
pauses              %d by the collector, the longest %d us; %d in accepting
engine              promotions %d, demotions %d, pipe growths %d, marks raised %d, lowered %d, turns cut %d
`,
		s.Connections.Accepted, s.Connections.Active, s.Connections.Refused, byReason(s.RefusedBy),
		s.Bytes.ClientToEndpoint.Spliced, s.Bytes.ClientToEndpoint.Copied,
		s.Bytes.EndpointToClient.Spliced, s.Bytes.EndpointToClient.Copied,
		s.Lost, counts(s.Fallbacks),
		s.Pipes.Made, s.Pipes.Reused, s.Pipes.Leased, s.Pipes.Idle,
		s.Pauses.GC, s.Pauses.GCMaxUs, s.AcceptPauses,
		s.Engine.Promotions, s.Engine.Demotions, s.Engine.PipeGrowths,
		s.Engine.MarksRaised, s.Engine.MarksLowered, s.Engine.TurnsCut); err != nil || s.Loops == nil {
		return err
	}
	if a := s.Arena; a != nil {
		if _, err := fmt.Fprintf(w, "arena               used %d of %d bytes, at most %d, residues %d, refused %d\n",
			a.Used, a.Size, a.Peak, a.Residues, a.Refused); err != nil {
			return err
		}
	}
	return writeLoops(w, s.Loops)
}

// writeLoops writes a line on what loops have done.
func writeLoops(w io.Writer, loops []proxy.Loop) error {
	var active []string
	var sum proxy.Loop
	for _, l := range loops {
		active = append(active, fmt.Sprint(l.Active))
		sum.HandedOver += l.HandedOver
		sum.Blocked += l.Blocked
		sum.Gathers += l.Gathers
		sum.BusyPollHits += l.BusyPollHits
		sum.Batches += l.Batches
		sum.BatchRefused += l.BatchRefused
		sum.LagP99Us, sum.LagMaxUs = max(sum.LagP99Us, l.LagP99Us), max(sum.LagMaxUs, l.LagMaxUs)
		sum.TimerLateP99Us, sum.TimerLateMaxUs = max(sum.TimerLateP99Us, l.TimerLateP99Us), max(sum.TimerLateMaxUs, l.TimerLateMaxUs)
	}
	_, err := fmt.Fprintf(w, "loops               %d, active %s, handed over %d, blocked %d, gathers %d, busy-poll hits %d, batches %d (refused %d), lag %d us (99 %%), %d us (longest), timers late %d us (99 %%), %d us (longest)\n",
		len(loops), strings.Join(active, " + "), sum.HandedOver, sum.Blocked, sum.Gathers, sum.BusyPollHits, sum.Batches, sum.BatchRefused, sum.LagP99Us, sum.LagMaxUs, sum.TimerLateP99Us, sum.TimerLateMaxUs)
	return err
}

// counts lists counts by name: "urgent 2, wrapped 1".
func counts(m map[string]int64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, fmt.Sprintf("%s %d", name, m[name]))
	}
	if list == nil {
		return "none"
	}
	return strings.Join(list, ", ")
}
