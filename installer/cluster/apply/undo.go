package apply

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// An Undo is what undoing the last apply does with one manifest.
type Undo struct {
	Name string
	Now  Entry
	// To is the version that is applied again; nil if the manifest is removed, because there was none before.
	To *Revision
	// Manifest is that version.
	Manifest *Manifest
	// Continues reports that an undo of it was interrupted.
	Continues bool
}

// versionBefore returns the version that an undo of a manifest applies: the newest other one before the present one that ran, or else the
// newest; nil if there is none.
func versionBefore(list []Revision, name string, now Entry) (to *Revision) {
	for i := range list {
		r := &list[i]
		other := r.SHA256 != now.SHA256 || r.Namespace != now.Namespace || r.Chart != now.Chart
		if r.Manifest == name && r.Number < now.Revision && other && (r.Complete || to == nil || !to.Complete) {
			to = r
		}
	}
	return to
}

// isNew reports whether the present version of a manifest is its first one.
func isNew(list []Revision, name string, now Entry) bool {
	return slices.ContainsFunc(list, func(r Revision) bool { return r.Manifest == name && r.Number == now.Revision && r.New })
}

// Undos returns what an undo does. Without names, it undoes all that the last apply changed. A name may be "web@3": then version 3 is
// applied again. An undo that was interrupted is continued.
func (s *Applier) Undos(ctx context.Context, names []string) (undos []Undo, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	list, err := readHistory(ctx, s.client.API, "")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		if names = lastChanged(inventory); len(names) == 0 {
			return nil, fault.New(fault.Usage, "there is nothing to undo: the history has no apply").Hint("to see the history: ./install apply history")
		}
	}
	for _, arg := range names {
		name, version, chosen := strings.Cut(arg, "@")
		if slices.ContainsFunc(undos, func(u Undo) bool { return u.Name == name }) {
			return nil, fault.New(fault.Usage, "manifest %q is named twice", name).Hint("name each manifest once")
		}
		now, ok := inventory[name]
		if !ok || now.SHA256 == "" {
			return nil, unknown(name, inventory)
		}
		u := Undo{Name: name, Now: now, Continues: now.Undoes != "" && !chosen}
		switch {
		case chosen:
			number, err := strconv.Atoi(version)
			i := slices.IndexFunc(list, func(r Revision) bool { return r.Manifest == name && r.Number == number })
			if err != nil || i < 0 {
				return nil, fault.New(fault.Usage, "manifest %q has no version %q", name, version).Hint("to see which are kept: ./install apply history " + name)
			}
			if u.To = &list[i]; u.To.SHA256 == now.SHA256 && u.To.Namespace == now.Namespace && u.To.Chart == now.Chart {
				if u.Continues = now.Undoes != ""; !u.Continues && !s.Force {
					return nil, fault.New(fault.Usage, "version %d of manifest %q is the present one", number, name).Hint("to see the others: ./install apply history " + name)
				}
			}
		case u.Continues:
			i := slices.IndexFunc(list, func(r Revision) bool { return r.Manifest == name && r.Number == now.Revision })
			if i >= 0 {
				u.To = &list[i]
			}
		case now.Removing && slices.ContainsFunc(list, func(r Revision) bool { return r.Manifest == name && !r.New }):
			return nil, fault.New(fault.Failure, "manifest %q is being removed, and that was interrupted", name).Hint("to continue: ./install apply remove " + name)
		case now.Removing: // the interrupted undo had begun to remove it
		default:
			if u.To = versionBefore(list, name, now); u.To == nil && !isNew(list, name, now) {
				return nil, fault.New(fault.Usage, "no version of manifest %q before the present one is kept", name).
					Hint("apply the file that has it; to see which versions are kept: ./install apply history " + name)
			}
		}
		if u.To != nil {
			if u.Manifest, err = s.manifestOf(ctx, *u.To); err != nil {
				return nil, err
			}
			if u.Manifest.undoes = now.Run; u.Continues {
				u.Manifest.undoes = now.Undoes
			}
			if u.Manifest.undoes == "" {
				u.Manifest.undoes = "unknown" // an older Airlift applied it
			}
		}
		undos = append(undos, u)
	}
	return undos, nil
}

// lastChanged returns the manifests that the last apply changed, or whose undo was interrupted.
func lastChanged(inventory map[string]Entry) (names []string) {
	last, undoes := "", ""
	for _, e := range inventory {
		last, undoes = max(last, e.Run), max(undoes, e.Undoes)
	}
	for _, name := range slices.Sorted(maps.Keys(inventory)) {
		e := inventory[name]
		switch {
		case undoes != "" && (e.Undoes != "" || e.Run == undoes): // the interrupted undo, and what it had not begun
			names = append(names, name)
		case undoes == "" && last != "" && e.Run == last && e.SHA256 != "":
			names = append(names, name)
		}
	}
	return names
}

func unknown(name string, inventory map[string]Entry) error {
	var known []string
	for _, n := range slices.Sorted(maps.Keys(inventory)) {
		known = append(known, strconv.Quote(n))
	}
	if len(known) == 0 {
		return fault.New(fault.Usage, "there is no manifest %q in the cluster", name).Hint("none was applied")
	}
	return fault.New(fault.Usage, "there is no manifest %q in the cluster", name).Hint("one of: " + strings.Join(known, ", "))
}

// WantedOf returns the objects that an undo removes: the objects that only the undone version has.
func (s *Applier) WantedOf(u Undo) Wanted {
	w := Wanted{Manifest: u.Name}
	switch {
	case u.To == nil:
		return s.Everything(u.Name, u.Now)
	case u.Continues:
		w.Objects = u.Now.Undone
	default:
		w.Objects = without(slices.Concat(u.Now.Objects, u.Now.Later, u.Now.Hooks), nil)
		w.Stays = s.hookNames(u.Manifest)
		for _, o := range u.Manifest.objects {
			w.Stays = append(w.Stays, inventoryName(o, s.placeOf(u.Manifest, o)))
		}
	}
	return w
}

// Everything returns all objects of a manifest, with the namespace that was created for it.
func (s *Applier) Everything(name string, e Entry) Wanted {
	w := Wanted{Manifest: name, Objects: e.all()}
	if e.Namespace != "" && !slices.Contains([]string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}, e.Namespace) {
		w.Objects = without(append([]string{"Namespace " + e.Namespace}, w.Objects...), nil)
	}
	return w
}

// FormerOf returns the objects that would be former after these manifests were applied, for each.
func (s *Applier) FormerOf(ctx context.Context, manifests []*Manifest) (wanted []Wanted, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	for _, m := range manifests {
		w := Wanted{Manifest: m.Name, Stays: s.hookNames(m)}
		for _, o := range m.objects {
			w.Stays = append(w.Stays, inventoryName(o, s.placeOf(m, o)))
		}
		w.Objects = inventory[m.Name].all()
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// EndUndo records that an undo has ended.
func (s *Applier) EndUndo(ctx context.Context, names []string) error {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return err
	}
	for _, name := range names {
		if e, ok := inventory[name]; ok && e.Undoes != "" {
			e.Undoes, e.Undone = "", nil
			if err := s.record(ctx, name, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// BeginRemoval records that a manifest is removed. Its objects are former ones then.
func (s *Applier) BeginRemoval(ctx context.Context, w Wanted) error {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return err
	}
	e, ok := inventory[w.Manifest]
	if !ok || e.Removing { // what is gone since is not former any more
		return nil
	}
	m, err := s.present(ctx, w.Manifest, e)
	if err != nil {
		return err
	}
	if e.Pending = nil; m != nil {
		e.Pending = m.eventsOf(deletion)
	}
	e.Removing, e.Former, e.Objects, e.Later, e.Hooks = true, without(slices.Concat(w.Objects, e.all()), nil), nil, nil, nil
	e.Undoes, e.Undone, e.Applied = "", nil, ""
	return s.record(ctx, w.Manifest, e)
}

// present returns the version of a manifest that is applied; nil if the history does not have it.
func (s *Applier) present(ctx context.Context, name string, e Entry) (*Manifest, error) {
	list, err := readHistory(ctx, s.client.API, name)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Number == e.Revision && e.Revision > 0 {
			return s.manifestOf(ctx, r)
		}
	}
	return nil, nil
}

// RemovalHooks runs the hooks of a manifest that is removed, before or after its objects. later is why they cannot run before a worker
// joins.
func (s *Applier) RemovalHooks(ctx context.Context, name string, afterwards bool) (later string, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return "", err
	}
	event := beforeObjects + deletion
	if afterwards {
		event = afterObjects + deletion
	}
	e := inventory[name]
	if !e.Removing || !slices.Contains(e.Pending, event) {
		return "", nil
	}
	m, err := s.present(ctx, name, e)
	if err != nil || m == nil {
		return "", err
	}
	if later, err = s.runHooks(ctx, m, event, e.hookRun(), &Applied{}); later != "" || err != nil {
		return later, err
	}
	e.Pending = without(e.Pending, []string{event})
	return "", s.record(ctx, name, e)
}

// HookObjects returns the objects of the hooks of the present version of a manifest.
func (s *Applier) HookObjects(ctx context.Context, name string, e Entry) (Wanted, error) {
	m, err := s.present(ctx, name, e)
	if m == nil || err != nil {
		return Wanted{Manifest: name}, err
	}
	return Wanted{Manifest: name, Objects: s.hookNames(m)}, nil
}

// RemovalImages returns the images of the hooks that run when a manifest is removed.
func (s *Applier) RemovalImages(ctx context.Context, name string, e Entry) ([]string, error) {
	m, err := s.present(ctx, name, e)
	if m == nil || err != nil || len(m.eventsOf(deletion)) == 0 {
		return nil, err
	}
	hooks := slices.DeleteFunc(slices.Clone(m.hooks), func(h *hook) bool {
		return !slices.Contains(h.events, beforeObjects+deletion) && !slices.Contains(h.events, afterObjects+deletion)
	})
	return (&Manifest{hooks: hooks}).Images(), nil
}

// EndRemoval forgets a manifest and its history. Objects that stay until they are named remain in the inventory as former ones: then it
// returns them.
func (s *Applier) EndRemoval(ctx context.Context, name string) (left []string, err error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return nil, err
	}
	e, ok := inventory[name]
	if !ok {
		return nil, nil
	}
	if err := s.dropHistory(ctx, manifestLabel+"="+name); err != nil {
		return nil, err
	}
	if len(e.Former) > 0 {
		return e.Former, s.record(ctx, name, Entry{Bundle: e.Bundle, Namespace: e.Namespace, Former: e.Former})
	}
	configMaps := s.client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	err = wait.Retry(ctx, func() error {
		_, err := configMaps.Patch(ctx, InventoryName, types.MergePatchType, []byte(`{"data":{`+strconv.Quote(name)+`:null}}`), metav1.PatchOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("removing manifest %q from ConfigMap %s/%s: %w", name, metav1.NamespaceSystem, InventoryName, err)
	}
	return nil, nil
}

// Known returns the entry of a manifest, or an error that names the manifests of the cluster.
func (s *Applier) Known(ctx context.Context, name string) (Entry, error) {
	inventory, err := ReadInventory(ctx, s.client.API)
	if err != nil {
		return Entry{}, err
	}
	e, ok := inventory[name]
	if !ok {
		return e, unknown(name, inventory)
	}
	return e, nil
}
