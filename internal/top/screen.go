package top

import (
	"context"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
)

// Run shows the view on a screen until the user quits or ctx ends. ticks ask for a
// new reading, which read returns.
func Run(ctx context.Context, screen tcell.Screen, v *View, ticks <-chan time.Time, read func() []*stats.Snapshot) error {
	if err := screen.Init(); err != nil {
		return err
	}
	defer screen.Fini()
	events, quit := make(chan tcell.Event), make(chan struct{})
	go screen.ChannelEvents(events, quit)
	defer close(quit)
	var m Meter
	step := func() { v.Now = time.Now(); v.Rows = m.Step(v.Now, read()) }
	step()
	for {
		draw(screen, v)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks:
			step()
		case e := <-events:
			switch e := e.(type) {
			case *tcell.EventKey:
				if v.key(e.Key(), e.Rune()) {
					return nil
				}
			case *tcell.EventResize:
				screen.Sync()
			}
		}
	}
}

// key changes the view as a key asks for, and reports whether it ends the program.
func (v *View) key(k tcell.Key, r rune) (quit bool) {
	if k == tcell.KeyCtrlC {
		return true
	}
	if v.Typing {
		v.typeFilter(k, r)
		return false
	}
	switch {
	case r == 'q' && k == tcell.KeyRune:
		return true
	case k == tcell.KeyEscape, k == tcell.KeyBackspace, k == tcell.KeyBackspace2, k == tcell.KeyLeft:
		v.Detail = false
	case k == tcell.KeyEnter, k == tcell.KeyRight:
		v.Detail = true
	case k == tcell.KeyUp, r == 'k':
		v.Move(-1)
	case k == tcell.KeyDown, r == 'j':
		v.Move(1)
	case k == tcell.KeyPgUp:
		v.Move(-10)
	case k == tcell.KeyPgDn:
		v.Move(10)
	case r == 's':
		v.Order = (v.Order + 1) % numOrders
	case r == '/':
		v.Typing, v.Detail = true, false
	}
	return false
}

func (v *View) typeFilter(k tcell.Key, r rune) {
	switch k {
	case tcell.KeyEnter:
		v.Typing = false
	case tcell.KeyEscape:
		v.Typing, v.Filter = false, ""
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if runes := []rune(v.Filter); len(runes) > 0 {
			v.Filter = string(runes[:len(runes)-1])
		}
	case tcell.KeyRune:
		v.Filter += string(r)
	}
	v.Selected = 0
}

var styles = [...]tcell.Style{
	Plain:    tcell.StyleDefault,
	Title:    tcell.StyleDefault.Bold(true),
	Header:   tcell.StyleDefault.Dim(true),
	Process:  tcell.StyleDefault.Bold(true),
	Selected: tcell.StyleDefault.Reverse(true),
	Alert:    tcell.StyleDefault.Foreground(tcell.ColorRed),
}

func draw(screen tcell.Screen, v *View) {
	width, height := screen.Size()
	screen.Clear()
	for y, line := range v.Render(width, height) {
		text := line.Text
		if line.Style == Selected {
			text += strings.Repeat(" ", max(width-human.Columns(text), 0))
		}
		screen.PutStrStyled(0, y, text, styles[line.Style])
	}
	screen.Show()
}
