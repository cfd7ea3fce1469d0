// Package page tests the page of the admin API in a real browser, Chromium without a window.
package page
