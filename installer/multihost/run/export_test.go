package run

import "time"

// PlanWithPatches is for tests of its shell script.
var PlanWithPatches = (*Host).planWithPatches

// SetSinceStart replaces the clock of this machine, until the returned function is called.
func SetSinceStart(clock func() time.Duration) func() {
	former := sinceStart
	sinceStart = clock
	return func() { sinceStart = former }
}

// SetSendTime replaces how long a copy may not move, until the returned function is called.
func SetSendTime(limit time.Duration) func() {
	former := sendTime
	sendTime = limit
	return func() { sendTime = former }
}

// SetAnswerTime replaces how long a host may take for an answer, until the returned function is called.
func SetAnswerTime(limit time.Duration) func() {
	former := answerTime
	answerTime = limit
	return func() { answerTime = former }
}
