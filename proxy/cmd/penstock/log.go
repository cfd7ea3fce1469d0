package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
)

// newLogger returns a logger of form "text" or "json" that writes one line for each record.
// The level is one of slog's, in lower case.
func newLogger(w io.Writer, form, level string) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: readable}
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

// readable escapes bytes that are not UTF-8, \xff, as everywhere. A line of JSON would lose them.
func readable(_ []string, a slog.Attr) slog.Attr {
	text := ""
	if a.Value.Kind() == slog.KindString {
		text = a.Value.String()
	} else if err, ok := a.Value.Any().(error); ok {
		text = err.Error()
	}
	if !utf8.ValidString(text) {
		a.Value = slog.StringValue(display.Text(text))
	}
	return a
}

// writeSummary writes a summary in one line: as JSON, or as text without the counters of the
// engine and of loops.
func writeSummary(w io.Writer, form string, s admin.Summary) error {
	if form == "json" {
		return json.NewEncoder(w).Encode(s)
	}
	there, back := s.Bytes.ClientToEndpoint, s.Bytes.EndpointToClient
	_, err := fmt.Fprintf(w, "%d connections accepted, %d refused%s; client to endpoint: %d bytes spliced, %d copied; endpoint to client: %d bytes spliced, %d copied%s; %d bytes lost; fallbacks: %s\n",
		s.Connections.Accepted, s.Connections.Refused, byReason(s.RefusedBy),
		there.Spliced, there.Copied, back.Spliced, back.Copied, laneBytes(&s), s.Lost, counts(s.Fallbacks))
	return err
}

// laneBytes has the bytes of sessions that had left user space, if there were any.
func laneBytes(s *admin.Summary) string {
	there, back := s.Bytes.ClientToEndpoint.Lane, s.Bytes.EndpointToClient.Lane
	if there+back == 0 {
		return ""
	}
	return fmt.Sprintf("; in the lane: %d bytes to endpoints, %d to clients", there, back)
}

// counts formats counters by name: "urgent 2, wrapped 1".
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
