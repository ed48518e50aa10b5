// Command promlint reads metrics in Prometheus' text format from standard input and
// prints what Prometheus' own linter says against them.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func main() {
	problems, err := promlint.New(os.Stdin).Lint()
	for _, p := range problems {
		fmt.Printf("%s: %s\n", p.Metric, p.Text)
	}
	if err != nil {
		fmt.Println(err)
	}
	if err != nil || len(problems) > 0 {
		os.Exit(1)
	}
}
