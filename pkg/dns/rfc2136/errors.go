// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	miekgdns "github.com/miekg/dns"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// unreachable is the error for a server of which there is no answer. Its text is always the same: whoever names a server does
// not learn whether a port is closed, filtered, or open and of something else. The log has the cause.
type unreachable struct {
	address string
	cause   error
}

func noAnswer(ctx context.Context, address string, cause error) error {
	logf.FromContext(ctx).Info("No answer of a DNS server", "server", address, "reason", cause.Error())
	return &unreachable{address: address, cause: cause}
}

// Error implements error.
func (e *unreachable) Error() string {
	return "no answer of server " + e.address + ": see whether it runs and answers by TCP"
}

// Unwrap returns the cause.
func (e *unreachable) Unwrap() error { return e.cause }

// rcodeError is an answer of a server that is an error.
type rcodeError struct {
	rcode int
	text  string
}

// Error implements error.
func (e *rcodeError) Error() string { return e.text }

// isChanged reports whether an error is that a prerequisite is not met: the server has not what was written.
func isChanged(err error) bool {
	var problem *rcodeError
	return errors.As(err, &problem) && (problem.rcode == miekgdns.RcodeNXRrset || problem.rcode == miekgdns.RcodeNameError)
}

// isRaced reports whether an error is that a name has come into use since it was looked at.
func isRaced(err error) bool {
	var problem *rcodeError
	return errors.As(err, &problem) && (problem.rcode == miekgdns.RcodeYXDomain || problem.rcode == miekgdns.RcodeYXRrset || problem.rcode == miekgdns.RcodeNXRrset)
}

// isFailure reports whether an answer says that nothing was done, for which it need not be signed.
func isFailure(rcode int) bool {
	switch rcode {
	case miekgdns.RcodeFormatError, miekgdns.RcodeServerFailure, miekgdns.RcodeNotImplemented, miekgdns.RcodeRefused, miekgdns.RcodeNotAuth, miekgdns.RcodeNotZone:
		return true
	default:
		return false
	}
}

// isRejected reports whether an error is an answer that nothing was done. After a failure of the server that isn't certain.
func isRejected(err error) bool {
	var problem *rcodeError
	return errors.As(err, &problem) && problem.rcode != miekgdns.RcodeServerFailure && (isFailure(problem.rcode) || problem.rcode == miekgdns.RcodeYXRrset || problem.rcode == miekgdns.RcodeYXDomain)
}

// isOfNoZone reports whether an error is an answer that the server hasn't such a zone, and so no record of it.
func isOfNoZone(err error) bool {
	var problem *rcodeError
	return errors.As(err, &problem) && problem.rcode == miekgdns.RcodeNotAuth
}

func isUsersMistake(err error) bool {
	return err != nil && len(v1beta1helper.ExtractErrorCodes(err)) > 0
}

func rcodeName(rcode int) string {
	if name, ok := miekgdns.RcodeToString[rcode]; ok {
		return name
	}
	return "RCODE" + strconv.Itoa(rcode)
}

// problem says what an answer means and what to do about it.
func (s *session) problem(what string, reply *miekgdns.Msg) error {
	problem := &rcodeError{rcode: reply.Rcode, text: fmt.Sprintf("%s: server %s answers %s", what, s.address, rcodeName(reply.Rcode))}
	with := "unsigned messages"
	if s.key != nil {
		with = "the key " + s.key.name
	}
	switch reply.Rcode {
	case miekgdns.RcodeRefused:
		problem.text += ": it does not serve the zone, or does not allow this with " + with + "; see its access lists and update policy"
		return v1beta1helper.NewErrorWithCodes(problem, gardencorev1beta1.ErrorInfraUnauthorized)
	case miekgdns.RcodeNotAuth:
		problem.text += ": it is not a server of the zone; name the primary server, and a zone that it has"
		return dns.ConfigurationProblem(problem)
	case miekgdns.RcodeNotZone:
		problem.text += ": the name is not in the zone; check the zones"
		return dns.ConfigurationProblem(problem)
	case miekgdns.RcodeNotImplemented:
		problem.text += ": it takes no dynamic updates, or not of this zone; see its configuration"
		return dns.ConfigurationProblem(problem)
	case miekgdns.RcodeFormatError:
		problem.text += ": it does not understand the message; see its log"
	case miekgdns.RcodeServerFailure:
		problem.text += ": it can't do this now; see its log"
	case miekgdns.RcodeYXRrset:
		problem.text += ": the name is an alias (CNAME), beside which no other record can stand; delete one of them"
		return dns.ConfigurationProblem(problem)
	case miekgdns.RcodeYXDomain:
		problem.text += ": it has records of that name that no DNSRecord is known to own; choose another domain, or delete them there"
		return dns.ConfigurationProblem(problem)
	case miekgdns.RcodeNXRrset, miekgdns.RcodeNameError:
		problem.text += ": it has not what was there before"
	}
	return problem
}

// signatureProblem returns what is wrong with the signature of an answer, by the server's word or by ours, or nil. err is
// the one of the verification.
func (s *session) signatureProblem(what string, reply *miekgdns.Msg, err error) error {
	signature := reply.IsTsig()
	var says string
	switch {
	case signature == nil && err == nil && !isFailure(reply.Rcode):
		says = "answers without a signature: see whether something between answers in its place"
	case signature == nil:
		return nil
	case signature.Error == miekgdns.RcodeBadKey:
		says = "answers BADKEY: it has no key of that name and algorithm; check " + KeyTSIGKeyName + " and " + KeyTSIGSecretAlgorithm
	case signature.Error == miekgdns.RcodeBadSig:
		says = "answers BADSIG: its key of that name is another; check " + KeyTSIGSecret + " and " + KeyTSIGSecretAlgorithm
	case signature.Error == miekgdns.RcodeBadTime:
		says = "answers BADTIME: its clock and that of this program differ by more than " + strconv.Itoa(fudge) + " seconds; set them"
	case signature.Error != miekgdns.RcodeSuccess:
		says = "answers " + rcodeName(int(signature.Error)) + " about the signature"
	case errors.Is(err, miekgdns.ErrTime):
		says = "gives a time that differs from that of this program by more than " + strconv.Itoa(fudge) + " seconds: set the clocks"
	case err != nil:
		says = "signs its answer with another key (" + err.Error() + "): check " + KeyTSIGSecret + ", and whether something between answers in its place"
	default:
		return nil
	}
	return v1beta1helper.NewErrorWithCodes(fmt.Errorf("%s with the key %s: server %s %s", what, s.key.name, s.address, says), gardencorev1beta1.ErrorInfraUnauthorized)
}
