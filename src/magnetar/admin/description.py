# SPDX-License-Identifier: Apache-2.0
"""What is served, described: `/openapi.json` for programs, `/docs` for people; for whoever the door lets in.

Carries.
"""

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

from magnetar.admin.answers import answered

router = APIRouter(include_in_schema=False)

DESCRIPTION: Final = "/openapi.json"
PAGE: Final = "/docs"


@router.get(DESCRIPTION)
async def description(request: Request) -> Response:
    return answered(request.app.openapi())


@router.get(PAGE)
async def page(request: Request) -> Response:
    return get_swagger_ui_html(openapi_url=DESCRIPTION, title=request.app.title)
