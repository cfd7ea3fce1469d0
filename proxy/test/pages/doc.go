// Package pages types the commands of docs/tutorial.md and docs/howto.md as they stand there, with real servers. It has
// no code but its tests.
package pages
