from paddock.auth.audit import Audit, AuditEntry
from paddock.auth.ratelimit import RateLimiter
from paddock.auth.tokens import ANYONE, Principal, Role, Token, Tokens

__all__ = ["ANYONE", "Audit", "AuditEntry", "Principal", "RateLimiter", "Role", "Token", "Tokens"]
