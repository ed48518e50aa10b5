package main

import (
	"strings"
	"testing"

	"github.com/culvert-io/culvert/route"
)

// A store on which two savers overwrite each other gets a warning.
func TestSaveWarns(t *testing.T) {
	for _, plain := range []bool{false, true} {
		text := saveResult{File: "s3://b/k", Origin: route.Origin{Store: "s3+http://h", Unconditional: plain}}.String()
		if !strings.Contains(text, "\nstore=s3+http://h ") || strings.Contains(text, " conditional_writes=no\nwarning: the store has no conditional writes") != plain {
			t.Errorf("unconditional %t: %s", plain, text)
		}
	}
}
