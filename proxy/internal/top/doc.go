// Package top is the view of a running process on a terminal: throughput and sessions by listener, upstream
// and endpoint, loops with their lag, problems, and the verdicts on sessions. It refreshes by itself, as top(1).
//
// [Model] is the state of the view and depends on its messages alone. Rates are the differences of two
// statuses by the time between them. [Once] writes the same as text, where there is no terminal.
//
// Every text of the process is escaped by package display before it is shown.
package top
