package fabrics

import "time"

// katUnit is the unit of Keep Alive timers: shorter ones are rounded up to it.
const katUnit = time.Second

// A keepAlive ends the controller of a host that is silent for too long: a host that lost
// its power says no goodbye.
type keepAlive struct {
	after time.Duration // 0 means for ever
	timer *time.Timer
	signs int // of life
}

// set starts the timer with a time in milliseconds, or stops it with 0.
func (k *keepAlive) set(ms uint32, end func()) {
	if k.timer != nil {
		k.timer.Stop()
	}
	k.after, k.timer = 0, nil
	if ms == 0 {
		return
	}
	k.after = (time.Duration(ms)*time.Millisecond + katUnit - 1) / katUnit * katUnit
	k.timer = time.AfterFunc(k.after, end)
}

// seen starts the time anew.
func (k *keepAlive) seen() {
	k.signs++
	if k.timer != nil {
		k.timer.Reset(k.after)
	}
}
