package run

// PlanWithPatches is for tests of its shell script.
var PlanWithPatches = (*Host).planWithPatches
