package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// repeat is how often an Event that did not change is written again.
const repeat = 10 * time.Minute

// events writes Events. Each has its message in its name, so the same one is not written twice by two nodes.
type events struct {
	api   kubernetes.Interface
	log   *slog.Logger
	queue chan corev1.Event
	last  map[string]*written // only the writer uses it
}

// written is when an Event was written last, and when there was a reason for it last.
type written struct{ at, held time.Time }

// again is how long there was no reason for a warning, if it is a new one.
const again = 5 * time.Second

func newEvents(api kubernetes.Interface, log *slog.Logger) *events {
	return &events{api: api, log: log, queue: make(chan corev1.Event, 100), last: map[string]*written{}}
}

// problem writes why a Service has no address, not one of each family, or not the one that it had.
func (e *events) problem(d decision) {
	if d.Problem != "" {
		reason := "NoAddress"
		lost := func(a netip.Addr) bool { return !slices.Contains(d.Addresses, a) }
		if len(d.Addresses) > 0 && slices.ContainsFunc(d.Current, lost) {
			reason = "AddressChanged"
		}
		e.warn(ofService(d.object), reason, d.Problem)
	}
}

// warn writes a warning, and again when it still holds after a while, or holds again.
func (e *events) warn(about corev1.ObjectReference, reason, message string) {
	e.add(about, corev1.EventTypeWarning, reason, message, repeat)
}

// normal writes that something happened.
func (e *events) normal(about corev1.ObjectReference, reason, message string) {
	e.add(about, corev1.EventTypeNormal, reason, message, 0)
}

func (e *events) add(about corev1.ObjectReference, kind, reason, message string, every time.Duration) {
	sum := sha256.Sum256([]byte(string(about.UID) + "\x00" + reason + "\x00" + message))
	name, now := about.Name+"."+hex.EncodeToString(sum[:8]), time.Now()
	key := about.Namespace + "/" + name
	if last := e.last[key]; last != nil && now.Sub(last.at) < every && now.Sub(last.held) < again {
		last.held = now
		return
	}
	for key, last := range e.last {
		if now.Sub(last.at) > repeat {
			delete(e.last, key)
		}
	}
	e.last[key] = &written{at: now, held: now}
	at := metav1.NewTime(now)
	event := corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: name}, InvolvedObject: about,
		Type: kind, Reason: reason, Message: message, Source: corev1.EventSource{Component: manager}, FirstTimestamp: at, LastTimestamp: at, Count: 1,
		ReportingController: manager}
	select {
	case e.queue <- event:
	default:
	}
}

// run writes the Events until ctx ends.
func (e *events) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-e.queue:
			e.write(ctx, event)
		}
	}
}

func (e *events) write(ctx context.Context, event corev1.Event) {
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	api := e.api.CoreV1().Events(event.Namespace)
	_, err := api.Create(limited, &event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var data []byte
		if data, err = json.Marshal(map[string]any{"lastTimestamp": event.LastTimestamp}); err == nil {
			_, err = api.Patch(limited, event.Name, types.MergePatchType, data, metav1.PatchOptions{})
		}
	}
	if err != nil {
		e.log.Debug("an Event was not written", "error", err)
	}
}
